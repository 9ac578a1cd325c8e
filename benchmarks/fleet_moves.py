"""How long a lane stands while it moves to another process, and what comes twice then.

Planned: a process joins and takes half of the lanes, and another leaves and gives all of its own.
Killed: a process ends by SIGKILL, with nothing of it left, and the lease has to pass. Events go on
all the while, so many a second to each lane; how old the oldest one of a lane is when it arrives is
how long that lane stood.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Self

from benchmarks.delivery_driver import Driver, await_lanes, running_driver
from benchmarks.lag_sink import LagSink, Note
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.envelope import event_headers
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import new_producer

_LANES = 100
_EVENTS_PER_S_OF_A_LANE = 2.0
_EVENT_BYTES = 500
# Before the move, and after what it waits for.
_QUIET_S = 4.0
# Longer than a lease and what is planned anew.
_FAILOVER_WITHIN_S = 90.0
_ARRIVE_WITHIN_S = 90.0
_LOOK_S = 0.2


@dataclass(slots=True)
class Writer:
    """Writes to all streams from when it is entered until it is left."""

    servers: str
    sent: Counter[str] = field(default_factory=Counter)
    _is_over: bool = False
    _thread: Thread = field(default_factory=Thread)
    # No two writers give the same number.
    _number: int = field(default_factory=time.time_ns)

    def __enter__(self) -> Self:
        self._thread = Thread(target=lambda: asyncio.run(self._write()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    async def _write(self) -> None:
        producer = new_producer(self.servers)
        await producer.start()
        begun_s, count, each_s = time.monotonic(), 0, 1 / (_LANES * _EVENTS_PER_S_OF_A_LANE)
        try:
            while not self._is_over:
                await asyncio.sleep(max(0.0, begun_s + count * each_s - time.monotonic()))
                stream, at_ms = f"s{count % _LANES}", now_ms()
                head = b'{"id":"%d","made_ns":%d,"pad":"' % (self._number, time.time_ns())
                value = head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}'
                headers = event_headers(
                    event_id=str(self._number), event_time_ms=at_ms, accepted_at_ms=at_ms
                )
                await producer.send(stream_topic(stream), value, headers=list(headers))
                self.sent[f"/{stream}"] += 1
                self._number += 1
                count += 1
            await producer.flush()
        finally:
            await producer.stop()


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of lanes that moved while events went on."""

    stood_s: Sequence[float]
    repeats: int
    unlabelled: int
    lost: int

    def percentile(self, part: float) -> float:
        ordered = sorted(self.stood_s)
        return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2)


def moves(servers: str, sink: LagSink, folder: Path, *, kills: int) -> Iterator[tuple[str, float]]:
    wanted = [
        Destination(stream=f"s{n}", name="moved", url=f"{sink.url('noting')}s{n}")
        for n in range(_LANES)
    ]
    with ExitStack() as running:

        def start(name: str) -> Driver:
            return running.enter_context(running_driver(servers, folder / name))

        first = start("first")
        first.configure([*map(Stream, {one.stream for one in wanted}), *wanted])
        await_lanes([first], wanted, are_up=True)
        drivers = [first]

        def join() -> None:
            drivers.append(start(f"next{len(list(folder.iterdir()))}"))
            _await_shares(drivers)

        def leave() -> None:
            os.kill(drivers.pop(0).pid, signal.SIGTERM)
            await_lanes(drivers, wanted, are_up=True)

        def die() -> None:
            os.kill(drivers.pop(0).pid, signal.SIGKILL)
            await_lanes(drivers, wanted, are_up=True)

        planned = [_meanwhile(servers, sink, drivers, act) for act in (join, leave)]
        stood_s = [each for move in planned for each in move.stood_s]
        repeats = sum(move.repeats for move in planned)
        whole = Moved(stood_s, repeats, 0, sum(move.lost for move in planned))
        yield "handed_over", len(whole.stood_s)
        yield "handover_s", whole.percentile(0.95)
        yield "handover_repeats", whole.repeats
        yield "errors", whole.lost + whole.repeats
        killed = []
        for _ in range(kills):
            join()
            killed.append(_meanwhile(servers, sink, drivers, die))
        yield "kills", kills
        yield "failover_s", max(max(each.stood_s) for each in killed)
        yield "failover_repeats", sum(each.repeats for each in killed)
        yield "errors", sum(each.lost + each.unlabelled for each in killed)


def _held(driver: Driver) -> set[str]:
    """The streams of the lanes that it has."""
    lines = [line for line in driver.says().splitlines() if "hifi_delivery_lane_up{" in line]
    return {line.partition('destination="')[2].partition("/")[0] for line in lines}


def _await_shares(drivers: Sequence[Driver]) -> None:
    """Wait until each of them has lanes, and all have them once."""
    until_s = time.monotonic() + _FAILOVER_WITHIN_S
    while True:
        shares = [_held(driver) for driver in drivers]
        if all(shares) and sum(map(len, shares)) == len(set().union(*shares)) == _LANES:
            return
        if time.monotonic() > until_s:
            raise RuntimeError(f"lanes were not shared out: {[len(each) for each in shares]}")
        time.sleep(_LOOK_S)


def _meanwhile(
    servers: str, sink: LagSink, drivers: Sequence[Driver], act: Callable[[], None]
) -> Moved:
    """Have lanes move while events go on, and wait until all of them have come."""
    sink.take_notes()
    before = {stream: driver.pid for driver in drivers for stream in _held(driver)}
    with Writer(servers) as writer:
        time.sleep(_QUIET_S)
        act()
        time.sleep(_QUIET_S)
    after = {stream: driver.pid for driver in drivers for stream in _held(driver)}
    notes: list[Note] = []
    until_s = time.monotonic() + _ARRIVE_WITHIN_S
    while len(_first(notes)) < writer.sent.total() and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        notes += sink.take_notes()
    # A late copy would come by then.
    time.sleep(1.0)
    notes += sink.take_notes()
    first = _first(notes)
    again = [note for note in notes if note is not first[note.path, note.number]]
    moved = [f"/{stream}" for stream, pid in after.items() if before.get(stream) != pid]
    return Moved(
        [_stood_s(first, path) for path in moved],
        repeats=len(again),
        unlabelled=sum(not note.is_labelled for note in again),
        lost=writer.sent.total() - len(first),
    )


def _stood_s(first: Mapping[tuple[str, int], Note], path: str) -> float:
    return max(note.lag_ms for note in first.values() if note.path == path) / 1e3


def _first(notes: Sequence[Note]) -> dict[tuple[str, int], Note]:
    first: dict[tuple[str, int], Note] = {}
    for note in notes:
        first.setdefault((note.path, note.number), note)
    return first
