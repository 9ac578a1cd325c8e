"""Machines that send to one destination in simulated time, each with its view of the others.

Each has its own clock and its own flow file (a record), and hears the records of the log in order,
some time after they were written: like the workers and the driver of a real machine.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from delivery.flow_store import LockedFlow
from shared.flow.breaker import Start
from shared.flow.flow import EndedRequest, Flow, SendLimits
from shared.flow.flow_record import FlowRecord, folded, going_on
from shared.flow.sharing import is_sent_to
from shared.flow.starting import NotNow
from shared.retry.attempt import Attempt, classify
from tests.support.suite.samples import NOW_MS

STEP_MS = 10
# The time from a file to the log, and between two looks of a machine at the log.
TOLD_MS, ROUND_MS = 70, 100
# How often a machine checks its file for news when it has heard nothing.
LOOK_MS = 500

# A request's end, task and answer, the time that it took, and whether it is a probe.
Request = tuple[float, int, Attempt, float, bool]
Answering = Callable[[float], tuple[Attempt, float]]


@dataclass
class VirtualMachine:
    """One machine: its file, its driver, its tasks."""

    name: str
    # How many events a second the machine has to send, by time in seconds.
    load: Callable[[float], float]
    task_count: int = 2
    ahead_ms: int = 0
    # Whether the machine is frozen, by time in seconds; it continues afterwards.
    is_off: Callable[[float], bool] = lambda _: False
    record: FlowRecord = field(default_factory=lambda: FlowRecord(Flow()))
    waiting: float = 0.0
    sent_ms: list[float] = field(default_factory=list)
    under_way: list[Request] = field(default_factory=list)
    probe_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record = FlowRecord(Flow(), store=self.name)
        self.known: FlowRecord | None = None
        self.read_count = 0
        self.round_at_ms = self.look_at_ms = 0.0
        self.is_new = False
        self.wakes = [0.0] * self.task_count
        self.joined = [False] * self.task_count


@dataclass
class VirtualFleet:
    """All machines together, as a destination sees them."""

    machines: list[VirtualMachine]
    limits: SendLimits
    answer: Answering
    batch: int = 1
    log: list[tuple[float, FlowRecord]] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(3))
    # How many requests were under way at once, by time.
    at_once: list[tuple[float, int]] = field(default_factory=list)
    at_ms: float = 0.0

    def live(self, seconds: float) -> None:
        end_ms = self.at_ms + 1000 * seconds
        while self.at_ms < end_ms:
            self.at_ms += STEP_MS
            for machine in self.dice.sample(self.machines, len(self.machines)):
                if not machine.is_off(self.at_ms / 1000):
                    self._turn(machine)
            self.at_once.append((self.at_ms, self._busy()))

    def _busy(self) -> int:
        return sum(each[0] > self.at_ms for it in self.machines for each in it.under_way)

    def _turn(self, machine: VirtualMachine) -> None:
        machine.waiting += machine.load(self.at_ms / 1000) * STEP_MS / 1000
        machine.waiting = min(machine.waiting, 10 * self.batch + machine.load(self.at_ms / 1000))
        if self.at_ms >= machine.round_at_ms:
            machine.round_at_ms = self.at_ms + ROUND_MS
            self._go_round(machine)
        ended = [each for each in machine.under_way if each[0] <= self.at_ms]
        for each in ended:
            machine.under_way.remove(each)
            machine.wakes[each[1]] = 0.0
        for task in range(machine.task_count):
            self._ask(machine, task, [each for each in ended if each[1] == task])

    def _go_round(self, machine: VirtualMachine) -> None:
        """Read and write news like NewsRound in a driver."""
        now_ms = self._now_ms(machine)
        while machine.read_count < len(self.log):
            told_ms, told = self.log[machine.read_count]
            if told_ms > self.at_ms:
                break
            machine.known = folded(machine.known, told, now_ms=now_ms)
            machine.read_count, machine.is_new = machine.read_count + 1, True
        known = machine.known
        if known is None or not known.flow.neighbours.others:
            return
        if machine.is_new or self.at_ms >= machine.look_at_ms:
            machine.is_new, machine.look_at_ms = False, self.at_ms + LOOK_MS
            locked = self._locked(machine)
            is_left = not is_sent_to(locked.flow.tasks, now_ms=now_ms)
            if not (is_left and not locked.flow.neighbours.mine.wants):
                self._close(machine, locked)

    def _ask(self, machine: VirtualMachine, task: int, ended: list[Request]) -> None:
        name = f"{machine.name}.{task}"
        count = sum(each[1] == task for each in machine.under_way)
        if not ended and (machine.waiting < self.batch or self.at_ms < machine.wakes[task]):
            if machine.joined[task] and not count and machine.waiting < self.batch:
                locked = self._locked(machine)
                locked.leave(name)
                machine.joined[task] = False
                self._close(machine, locked)
            return
        locked = self._locked(machine)
        machine.joined[task] = True
        for _, _, attempt, took_ms, is_probe in ended:
            done = EndedRequest(attempt, classify(attempt), self.batch, took_ms, took_ms, is_probe)
            locked.enter(done, roll=self.dice.random())
        while machine.waiting >= self.batch:
            answer = locked.ask(name, running_count=count)
            if isinstance(answer, NotNow):
                wait_ms = answer.until_ms - self._now_ms(machine)
                machine.wakes[task] = self.at_ms + min(wait_ms, 1_000)
                break
            assert isinstance(answer, Start)
            locked.start(event_count=self.batch)
            attempt, took_ms = self.answer(self.at_ms)
            is_probe = answer.is_probe
            machine.under_way.append((self.at_ms + took_ms, task, attempt, took_ms, is_probe))
            machine.sent_ms.append(self.at_ms)
            if is_probe:
                machine.probe_ms.append(self.at_ms)
            machine.waiting -= self.batch
            count += 1
        locked.runs(name, count)
        self._close(machine, locked)

    def _now_ms(self, machine: VirtualMachine) -> int:
        return NOW_MS + int(self.at_ms) + machine.ahead_ms

    def _locked(self, machine: VirtualMachine) -> LockedFlow:
        now_ms, record = self._now_ms(machine), machine.record
        record = going_on(record, machine.known, self.limits, store=machine.name, now_ms=now_ms)
        return LockedFlow(record.flow, self.limits, now_ms, record)

    def _close(self, machine: VirtualMachine, locked: LockedFlow) -> None:
        told = locked.to_publish()
        if told is not None:
            self.log.append((self.at_ms + TOLD_MS, told))
        machine.record = locked.record

    def sent(self, begin_s: float, end_s: float) -> list[float]:
        """Return the times in that span at which any machine sent a request."""
        times = (at_ms for each in self.machines for at_ms in each.sent_ms)
        return sorted(at_ms for at_ms in times if begin_s <= at_ms / 1000 < end_s)

    def per_second(self, begin_s: float, end_s: float) -> float:
        """Return the number of events per second."""
        return self.batch * len(self.sent(begin_s, end_s)) / (end_s - begin_s)

    def mean_at_once(self, begin_s: float, end_s: float) -> float:
        counts = [count for at_ms, count in self.at_once if begin_s <= at_ms / 1000 < end_s]
        return sum(counts) / len(counts)

    def most_at_once(self, begin_s: float, end_s: float) -> int:
        return max(count for at_ms, count in self.at_once if begin_s <= at_ms / 1000 < end_s)

    def part_above(self, most: int, begin_s: float, end_s: float) -> float:
        """Return the share of the time in which more than `most` were under way."""
        counts = [count for at_ms, count in self.at_once if begin_s <= at_ms / 1000 < end_s]
        return sum(count > most for count in counts) / len(counts)
