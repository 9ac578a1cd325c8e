"""Breaks things in a chaos run, and proves that each fault really happened.

A fault begins and, some time later, ends; both steps report their effect in a few words.
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from aiokafka.errors import KafkaError

from deploy.local.cluster import STOP_TIMEOUT_S
from deploy.local.ports import answers
from deploy.local.process_faults import NotHereError, ProcessFaults
from shared.runtime.kafka.clients import new_client, running
from shared.runtime.setup_error import KafkaUnavailableError, OperatorError, UsageError
from tests.chaos.actions import Action
from tests.chaos.world import World
from tests.support.kafka.broker_faults import wait_in_sync
from tests.support.kafka.leader_moves import elect_preferred, move_leaders
from tests.support.neighbours.kinds import KINDS
from tests.support.neighbours.site import QUOTAS, make_tenant, site_of
from tests.support.neighbours.worst_process import EndedError, worst_process
from tests.support.neighbours.worst_tenant import unproven

_DISKS = {"scratch": "retrier"}
_BLOCK = bytes(1 << 20)
# A broker that is frozen during an election may be the controller, which elects afterwards.
_ELECTED_S = 3.0
# By then an event has been sent that waits for the frozen broker.
_UNDER_WAY_S = 0.3
# A broker starts within 12 s if everything else runs on the same two cores, or not at all.
_BACK_S = 90.0
_LOOK_S = 0.2
_ASK_MS = 5_000


@dataclass
class Faults:
    """All faults of a run; `end_all` heals the rest."""

    _world: World
    # The function that ends each fault, and proves it if its beginning could not.
    _ends: dict[Action, Callable[[], str | None]] = field(default_factory=dict)
    # Faults that end by themselves.
    _works: dict[Action, Future[str]] = field(default_factory=dict)
    _workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "faults"))

    @property
    def under_way(self) -> list[Action]:
        return [*self._ends, *self._works]

    def begin(self, action: Action) -> str:
        """Start a fault; return its proof, or nothing for a fault that takes a while."""
        what, _, target = action.kind.partition(" ")
        match what:
            case "kill" | "freeze":
                return self._hurt(action, what, target)
            case "fill":
                return self._fill(action, target)
            case "cut":
                return self._cut(action)
            case "move" | "elect" | "roll":
                return self._work(action, getattr(self, f"_{what}_{target}"))
            case "worst":
                self._works[action] = self._workers.submit(self._misbehave, action, target)
                return ""
            case _:
                seconds = float(dict(action.settings)["seconds"])
                step = partial(self._skew, target) if what == "skew" else self._step_clock
                return step(action, seconds)

    def end(self, action: Action, *, waits: bool = True) -> str:
        """Return the proof of a longer fault; nothing while it lasts, unless `waits` is set."""
        if (work := self._works.get(action)) is not None:
            if not waits and not work.done():
                return ""
            return self._works.pop(action).result()
        undo = self._ends.pop(action, None)
        return (undo() if undo is not None else None) or ""

    def end_all(self) -> None:
        """End all faults, even those that cannot be proven."""
        for action in self.under_way:
            with suppress(NotHereError):
                self.end(action)

    def _work(self, action: Action, what: Callable[[dict[str, Any]], str]) -> str:
        """Start a fault in a thread, while everything else continues."""
        # Perhaps no event is accepted meanwhile, which excuses processes that end.
        self._world.excuse(for_s=action.for_s)
        self._works[action] = self._workers.submit(what, dict(action.settings))
        return ""

    def _misbehave(self, action: Action, kind: str) -> str:
        """Run a worst tenant, which is gone afterwards."""
        stack, worst = self._world.stack, KINDS[kind]
        try:
            key = make_tenant(stack.gateway, self._world.operator_key, action.tenant, QUOTAS)
            site = site_of(stack, action.tenant, key)
            with worst_process(worst, site) as misbehaving:
                misbehaving.go()
                time.sleep(action.for_s)
                happened = misbehaving.stop()
        except (EndedError, OperatorError, UsageError) as error:
            # The gateway may be away at that time.
            raise NotHereError(f"the fault did not happen: {error}") from error
        # Executors are not watched here.
        if lacking := [one for one in unproven(worst, happened) if "executors" not in one]:
            raise NotHereError(f"the fault did not happen: {', '.join(lacking)}")
        return ", ".join(f"{what}: {count}" for what, count in sorted(happened.items()))

    def _move_leaders(self, settings: dict[str, Any]) -> str:
        """Move leaders once in each pause of a broker, which is then a follower of the leaders."""
        proofs, total = [], 0
        for broker, pause_s, after_s in settings["pauses"]:
            with self._paused(broker, pause_s):
                time.sleep(after_s)
                moved = self._ask_for(move_leaders, broker, pause_s - after_s)
            total += moved
            proofs.append(f"{moved} with broker {broker} paused for {pause_s} s")
        if not total:
            raise NotHereError("no Kafka partition has another leader")
        return f"moved the leaders of Kafka partitions: {', '.join(proofs)}"

    def _elect_leaders(self, settings: dict[str, Any]) -> str:
        ((broker, pause_s, after_s),) = settings["pauses"]
        with self._paused(broker, pause_s):
            time.sleep(after_s)
            elected = self._ask_for(elect_preferred, broker, pause_s - after_s)
        # Partitions that prefer the paused broker.
        elected += self._ask_for(elect_preferred, None, 0)
        if elected:
            return f"{elected} Kafka partitions have their preferred leader again"
        # All have their preferred leader: from now on they prefer another one.
        preferred = self._ask_for(move_leaders, None, 0)
        if not preferred:
            raise NotHereError("no Kafka partition has a leader to elect")
        return f"{preferred} Kafka partitions prefer and have another leader"

    def _ask_for(
        self,
        what: Callable[..., Coroutine[Any, Any, int]],
        paused: int | None,
        left_s: float,
    ) -> int:
        """Return how many Kafka partitions have another leader now."""
        servers = self._world.kafka.split(",")
        asked = [one for number, one in enumerate(servers, start=1) if number != paused]
        but = [] if paused is None else [paused]
        try:
            return asyncio.run(what(",".join(asked), but=but, patience_s=left_s + _ELECTED_S))
        except (KafkaError, KafkaUnavailableError):
            return 0

    def _roll_brokers(self, settings: dict[str, Any]) -> str:
        """Stop and restart one broker after the other in order, with another one paused."""
        proofs = []
        for broker, paused, pause_s in settings["steps"]:
            name = f"broker {broker}"
            self._wait_in_sync()
            try:
                with self._paused(paused, pause_s):
                    time.sleep(_UNDER_WAY_S)
                    did_end = self._world.end(name, timeout_s=STOP_TIMEOUT_S)
                    port = self._world.stack.settings.kafka_ports[broker - 1]
                    assert not answers(port), f"{name} still answers on port {port}"
            finally:
                self._world.release(name)
            how = "stopped" if did_end else "was killed as it did not stop"
            proofs.append(f"{name} {how} with broker {paused} paused for {pause_s} s")
        self._wait_in_sync()
        return f"{', '.join(proofs)}; all are in sync again"

    def _wait_in_sync(self) -> None:
        until_s = time.monotonic() + _BACK_S
        while True:
            try:
                if all(map(answers, self._world.stack.settings.kafka_ports)):
                    wait_in_sync(self._world.stack.cluster)
                    return
            except KafkaError:
                pass
            assert time.monotonic() < until_s, f"not all brokers are back after {_BACK_S:.0f} s"
            time.sleep(_LOOK_S)

    @contextmanager
    def _paused(self, broker: int, for_s: float) -> Iterator[None]:
        """Freeze a broker for this long, however long the block takes."""
        name = f"broker {broker}"
        if name in self._world.kept_down or not self._world.children[name].alive:
            raise NotHereError(f"{name} is not running")
        _, resume = ProcessFaults(self._world).freeze(name)
        timer = threading.Timer(for_s, resume)
        timer.start()
        try:
            yield
        finally:
            timer.join()

    def _cut(self, action: Action) -> str:
        links, broker = self._world.links, dict(action.settings)["broker"]
        if links is None:
            raise NotHereError("this machine has one loopback address, and links need several")
        self._world.excuse(for_s=action.for_s)
        links.cut(broker)

        def mend() -> str:
            try:
                others = self._said_of(broker)
            finally:
                kept_back = links.mend(broker)
            assert kept_back, f"nothing was to pass between broker {broker} and the others"
            return f"{kept_back} bytes waited between broker {broker} and the others; {others}"

        self._ends[action] = mend
        return ""

    def _said_of(self, broker: int) -> str:
        """Return whether the others still count on a broker, according to one of them."""
        servers = self._world.kafka.split(",")
        other = servers[broker % len(servers)]

        async def ask() -> str:
            async with running(new_client(other, request_timeout_ms=_ASK_MS), other) as client:
                is_known = any(one.nodeId == broker for one in client.cluster.brokers())
                return f"the others had {'not ' if is_known else ''}given up on it"

        try:
            return asyncio.run(ask())
        except KafkaUnavailableError:
            return "the next one did not answer"

    def _hurt(self, action: Action, what: str, target: str) -> str:
        if target == "broker":
            # As long as the broker is away and until others have found it again.
            self._world.excuse(for_s=action.for_s)
        processes = ProcessFaults(self._world)
        proof, undo = (processes.kill if what == "kill" else processes.freeze)(target)
        self._ends[action] = undo
        return proof

    def _fill(self, action: Action, target: str) -> str:
        if not self._world.has_disks:
            raise NotHereError("this user may not mount a file system to fill")
        folder = self._world.folder / _DISKS[target]
        self._world.excuse(for_s=action.for_s)
        filler = folder / "filler"
        self._ends[action] = lambda: filler.unlink(missing_ok=True)
        size = _fill_up(filler)
        refused = _write_error(folder / "one-more")
        assert refused == errno.ENOSPC, f"{folder} still takes something"
        return f"{size >> 20} MB written, and then no byte more"

    def _step_clock(self, action: Action, seconds: float) -> str:
        self._world.step_clock(seconds)
        self._ends[action] = lambda: self._world.step_clock(0)
        # Request ids begin with their time of creation, in ms.
        try:
            answer = httpx.get(f"{self._world.stack.gateway}/v1/streams", timeout=5)
            made_ms = int(answer.json()["request_id"].replace("-", "")[:12], 16)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise NotHereError(f"the gateway does not answer with its time ({error!r})") from error
        off_s = made_ms / 1_000 - time.time()
        assert abs(off_s - seconds) < 10, f"the gateway's clock is off by {off_s:.0f} s"
        return f"the gateway's clock is off by {off_s:.0f} s"

    def _skew(self, service: str, action: Action, seconds: float) -> str:
        """Step the clock of one service alone: it disagrees with all others."""
        self._world.step_clock(seconds, service)
        self._ends[action] = lambda: self._world.step_clock(0, service)
        count = self._world.reads_clock_of(service)
        if not count:
            raise NotHereError(f"no process of {service} runs")
        return f"the clocks of {count} processes of {service} are off by {seconds:.0f} s"


def _fill_up(filler: Path) -> int:
    size = 0
    # Write smaller and smaller blocks, so that not even a log line has room.
    with filler.open("wb", buffering=0) as file:
        for block in (_BLOCK, _BLOCK[:4096]):
            try:
                while True:
                    size += file.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return size


def _write_error(path: Path) -> int:
    try:
        path.write_bytes(b"x" * 8192)
    except OSError as error:
        return error.errno or 0
    finally:
        path.unlink(missing_ok=True)
    return 0
