"""Measures how long a lane stops when it moves to another process, and the duplicates it causes.

Planned: a process joins and takes half of the lanes, and another leaves and gives up all of its
own. Killed: SIGKILL ends a process and its descendants, and the lease must expire. Frozen: SIGSTOP
freezes them until others have their lanes, and then they continue. Meanwhile each lane gets events
at a fixed rate. Its destination takes a moment to answer, so that a request is always open. The
age of a lane's oldest event on arrival is the time that the lane stood still.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Self

from benchmarks.delivery_driver import Driver, await_lanes, running_driver
from benchmarks.lag_sink import LagSink, Note
from benchmarks.process_tree import states_of, tree_of
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.envelope import event_headers
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import new_producer

_LANES = 100
_EVENTS_PER_S_OF_A_LANE = 2.0
_EVENT_BYTES = 500
# Pauses before a move, between checks that all lanes flow, and after the awaited state is reached.
_QUIET_S = 4.0
# Longer than a lease and a new plan take.
_FAILOVER_WITHIN_S = 90.0
_ARRIVE_WITHIN_S = 90.0
_LOOK_S = 0.2
# Faults hit several processes at once, so that they share the wait for a lease.
_OWNERS, _AT_ONCE = 4, 3
_STOPPED = {"T"}


@dataclass(slots=True)
class Writer:
    """Writes to all streams for the time of a `with` block."""

    servers: str
    sent: Counter[str] = field(default_factory=Counter)
    _is_over: bool = False
    _thread: Thread = field(default_factory=Thread)
    # The number of the next event, unique among all writers.
    number: int = field(default_factory=time.time_ns)

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
                head = b'{"id":"%d","made_ns":%d,"pad":"' % (self.number, time.time_ns())
                value = head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}'
                headers = event_headers(
                    event_id=str(self.number), event_time_ms=at_ms, accepted_at_ms=at_ms
                )
                await producer.send(stream_topic(stream), value, headers=list(headers))
                self.sent[f"/{stream}"] += 1
                self.number += 1
                count += 1
            await producer.flush()
        finally:
            await producer.stop()


@dataclass(frozen=True, slots=True)
class MoveFigures:
    """The results of moves under load."""

    # The standstill of each lane that has moved, and the longest of all lanes.
    stood_s: Sequence[float]
    longest_s: float
    # The lanes and numbers of repeated events.
    repeats: Collection[tuple[str, int]]
    # Counts: repeats without a label, events that came more than twice, events that never came.
    unlabelled: int
    over: int
    lost: int


def moves(
    servers: str, sink: LagSink, folder: Path, *, kills: int, freezes: int
) -> Iterator[tuple[str, float]]:
    with ExitStack() as running:
        fleet = Fleet(servers, sink, folder, running)
        yield from _planned(fleet)
        if kills or freezes:
            fleet.grow(_OWNERS)
        if kills:
            yield from _killed(fleet, kills)
        if freezes:
            yield from _frozen(fleet, freezes)


@dataclass(slots=True)
class Fleet:
    """Processes that share lanes, and the load on these lanes."""

    servers: str
    sink: LagSink
    folder: Path
    running: ExitStack
    drivers: list[Driver] = field(default_factory=list)
    _count: int = 0

    def start(self) -> None:
        """Start another process without waiting for it."""
        self._count += 1
        folder = self.folder / f"moving{self._count}"
        self.drivers.append(self.running.enter_context(running_driver(self.servers, folder)))

    def grow(self, count: int) -> None:
        """Start processes until there are `count`, and wait until each has its share."""
        while len(self.drivers) < count:
            self.start()
        self.await_shares(self.drivers)

    def await_shares(self, drivers: Sequence[Driver]) -> None:
        """Wait until each of these has lanes, and together they have every lane exactly once."""
        until_s = time.monotonic() + _FAILOVER_WITHIN_S
        while True:
            shares = [_lanes_of(driver) for driver in drivers]
            if all(shares) and sum(map(len, shares)) == len(set().union(*shares)) == _LANES:
                return
            if time.monotonic() > until_s:
                raise RuntimeError(f"lanes were not shared out: {[len(each) for each in shares]}")
            time.sleep(_LOOK_S)

    def meanwhile(self, act: Callable[[Writer], None]) -> MoveFigures:
        """Move lanes under load, and wait until all events have arrived."""
        self.sink.take_notes()
        before = self.owners()
        with Writer(self.servers) as writer:
            notes = self._await_flow()
            act(writer)
            time.sleep(_QUIET_S)
        after = self.owners()
        until_s = time.monotonic() + _ARRIVE_WITHIN_S
        while len(_first(notes)) < writer.sent.total() and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
            notes += self.sink.take_notes()
        # Time for a late copy to arrive.
        time.sleep(1.0)
        notes += self.sink.take_notes()
        first = _first(notes)
        again = [note for note in notes if note is not first[note.path, note.number]]
        moved = [f"/{stream}" for stream, pid in after.items() if before.get(stream) != pid]
        repeats = Counter((note.path, note.number) for note in again)
        return MoveFigures(
            [_stood_s(first, path) for path in moved],
            max(note.lag_ms for note in first.values()) / 1e3,
            repeats=repeats,
            unlabelled=sum(not note.is_labelled for note in again),
            over=sum(count > 1 for count in repeats.values()),
            lost=writer.sent.total() - len(first),
        )

    def _await_flow(self) -> list[Note]:
        """Wait until events of all lanes arrive, so that each lane has a request under way."""
        notes: list[Note] = []
        flowing: set[str] = set()
        until_s = time.monotonic() + _ARRIVE_WITHIN_S
        while len(flowing) < _LANES:
            if time.monotonic() > until_s:
                raise RuntimeError(f"{_LANES - len(flowing)} lanes stand still before the move")
            time.sleep(_QUIET_S)
            notes += (new := self.sink.take_notes())
            flowing = {note.path for note in new}
        return notes

    def owners(self) -> dict[str, int]:
        return {stream: driver.pid for driver in self.drivers for stream in _lanes_of(driver)}


def _planned(fleet: Fleet) -> Iterator[tuple[str, float]]:
    url = fleet.sink.url("noting")
    wanted = [Destination(stream=f"s{n}", name="moved", url=f"{url}s{n}") for n in range(_LANES)]
    fleet.start()
    fleet.drivers[0].configure([*map(Stream, {one.stream for one in wanted}), *wanted])
    await_lanes(fleet.drivers, wanted, are_up=True)

    def leave(_: Writer) -> None:
        os.kill(fleet.drivers.pop(0).pid, signal.SIGTERM)
        fleet.await_shares(fleet.drivers)

    planned = [fleet.meanwhile(act) for act in (lambda _: fleet.grow(2), leave)]
    repeats = sum(len(move.repeats) for move in planned)
    stood_s = sorted(each for move in planned for each in move.stood_s)
    yield "handed_over", len(stood_s)
    yield "handover_s", round(stood_s[int(0.95 * len(stood_s))], 2)
    yield "handover_repeats", repeats
    yield "errors", repeats + sum(move.lost for move in planned)


def _killed(fleet: Fleet, count: int) -> Iterator[tuple[str, float]]:
    killed: list[MoveFigures] = []
    for first in range(0, count, _AT_ONCE):
        dying = fleet.drivers[: min(_AT_ONCE, count - first)]

        def die(_: Writer, dying: Sequence[Driver] = dying) -> None:
            _signal(dying, signal.SIGKILL)
            fleet.drivers = [each for each in fleet.drivers if each not in dying]
            fleet.grow(_OWNERS)

        killed.append(fleet.meanwhile(die))
    yield "kills", count
    yield "failover_s", round(max(each.longest_s for each in killed), 2)
    yield "failover_repeats", sum(len(each.repeats) for each in killed)
    yield "errors", sum(each.lost + each.unlabelled for each in killed)


def _frozen(fleet: Fleet, count: int) -> Iterator[tuple[str, float]]:
    frozen: list[MoveFigures] = []
    repeats_max, wrong = 0, Counter[str]()
    for first in range(0, count, _AT_ONCE):
        standing = fleet.drivers[: min(_AT_ONCE, count - first)]
        others = [each for each in fleet.drivers if each not in standing]
        owners, numbers = fleet.owners(), list[int]()

        def freeze(
            writer: Writer,
            standing: Sequence[Driver] = standing,
            others: Sequence[Driver] = others,
            numbers: list[int] = numbers,
        ) -> None:
            with _standing_still(standing):
                numbers.append(writer.number)
                fleet.await_shares(others)
                # The measurement counts only if the processes really stood still.
                assert _states(standing) == _STOPPED
                time.sleep(_QUIET_S)
            fleet.await_shares(fleet.drivers)

        frozen.append(moved := fleet.meanwhile(freeze))
        # Put the frozen ones at the end, so that each process has its turn.
        fleet.drivers = [*others, *standing]
        by_owner = Counter(owners[path.strip("/")] for path, _ in moved.repeats)
        repeats_max = max(repeats_max, *by_owner.values(), 0)
        # Repeats must be of events from before the freeze.
        late = sum(number >= numbers[0] for _, number in moved.repeats)
        wrong.update(lost=moved.lost, unlabelled=moved.unlabelled)
        wrong.update(more_than_twice=moved.over, begun_while_frozen=late)
    yield from wrong.items()
    yield "errors", wrong.total()
    yield "frozen", count
    yield "frozen_s", round(max(each.longest_s for each in frozen), 2)
    yield "frozen_repeats_max", repeats_max


@contextmanager
def _standing_still(drivers: Sequence[Driver]) -> Iterator[None]:
    """Freeze these processes and their descendants for the block."""
    try:
        while _states(drivers) != _STOPPED:
            _signal(drivers, signal.SIGSTOP)
        yield
    finally:
        _signal(drivers, signal.SIGCONT)


def _states(drivers: Sequence[Driver]) -> set[str]:
    return states_of(pid for driver in drivers for pid in tree_of(driver.pid))


def _signal(drivers: Collection[Driver], number: int) -> None:
    for pid in [pid for driver in drivers for pid in tree_of(driver.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _lanes_of(driver: Driver) -> set[str]:
    """Return the streams whose lanes the process has."""
    lines = [line for line in driver.says().splitlines() if "hifi_delivery_lane_up{" in line]
    return {line.partition('destination="')[2].partition("/")[0] for line in lines}


def _stood_s(first: Mapping[tuple[str, int], Note], path: str) -> float:
    return max(note.lag_ms for note in first.values() if note.path == path) / 1e3


def _first(notes: Sequence[Note]) -> dict[tuple[str, int], Note]:
    first: dict[tuple[str, int], Note] = {}
    for note in notes:
        first.setdefault((note.path, note.number), note)
    return first
