"""Says which jobs may start: few when there is little to do, and none that would have no slot.

Whoever does not answer holds a slot for as long as it may be waited for. So some slots are for jobs
that are in a hurry, and the others are lent, to no tenant more than it leaves (ADR 0062).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import exp, inf
from typing import NamedTuple

from delivery.lanes.units import PATIENCE_S, Job, JobKind, Strand, TaskEnd
from shared.runtime.spark.processor_time import ProcessorTime

# Jobs of a worker that are not held yet: with more of them there is more to do than can be done,
# and each at the same time is a process more, with connections of its own to all of them.
_FRESH_MAX = {JobKind.SHARED: 2, JobKind.FOLLOWING: 5}
# Where workers take so many times as long as they need, for want of a processor, each has one fresh
# job at a time: it counts until it is half done. And what waits for company waits for longer, up
# to so many times.
_CROWDED, _OPEN_PART, _WAIT_STRETCH_MAX = 1.5, 0.5, 4.0
# What was heard before counts for so much beside the next task.
_KEPT_PART = 0.8
# Each worker that is shared has jobs of its own, which cost as much for few strands as for many. So
# there is one for so much of a core as is needed, by what tasks had of late, and one less only for
# somewhat less than that: three processes with a fifth of a core each have one each.
_WORTH_CORES, _LESS_PART, _MEAN_S = 0.3, 0.85, 5.0
# A job costs Spark 8 ms of processor time, so company is worth waiting for where there is some: few
# strands go at once, and where more than some two hundred have something to send in a second it is
# the longest wait. Each fresh job that still waits makes the next one wait a bit longer, too.
_LEAST_S, _STRAND_S, _STRANDS_S, _MOST_S = 0.03, 0.002, 0.0001, 0.4
# The most strands of another tenant that count: only a tenant itself waits for its own crowd.
_OTHERS_MAX = 8
# Where a fleet shares the work, a worker has less of it, and a job costs as much: so it waits for
# company for longer, by up to this part of the longest wait.
_SPARE_STRETCH = 0.75
_RUNNING_S = 0.05
# Those in real time that end together go on together: each job more is a process more. Whoever is
# late by more than that is waited for no longer.
_JOIN_S = 0.2
# A job that follows its logs may do so for longer: so long before its end that is decided, in parts
# of the time for which it follows, and so many of these it has in all. What it has read is counted
# with its report.
_DUE_PART, _TERMS_MAX = 0.35, 5
# Who is slow need not have what it takes to be quick.
_APART_S = 0.25
# Those that are well. A destination always has the same worker, which takes one task of each job.
_WELL = frozenset({JobKind.SHARED, JobKind.FOLLOWING})


class Grant(NamedTuple):
    """A job that may start now."""

    tenants: Collection[str]
    task_count_max: int = 1
    # It has a slot that is not lent.
    is_hurried: bool = False


@dataclass(slots=True, eq=False)
class Turn:
    """A job under way."""

    job: Job
    since_s: float
    # When it is done, if nobody has to be waited for.
    ends_s: float
    # How many strands of each tenant a task still waits for, and which those are.
    _tasks: list[Counter[str]]
    _strands: dict[Strand, tuple[int, str]]
    _strand_count: int
    # What follows its logs does so no longer: others join it, or something has changed.
    is_last: bool = False

    def done(self, strand: Strand) -> None:
        """It waits for that one no more."""
        if strand in self._strands:
            number, tenant = self._strands.pop(strand)
            self._tasks[number] -= Counter({tenant: 1})

    @property
    def only_tenant(self) -> str:
        """The one tenant whose destinations it still waits for; empty if it is none, or several."""
        found = ""
        for tenant in chain.from_iterable(self._tasks):
            if found not in {"", tenant}:
                return ""
            found = tenant
        return found

    @property
    def open_part(self) -> float:
        """What part of its strands it still waits for."""
        return len(self._strands) / self._strand_count

    @property
    def slot_count(self) -> int:
        return sum(map(bool, self._tasks))

    @property
    def slots_by_tenant(self) -> Counter[str]:
        """How many slots each tenant has, alone or with others."""
        return Counter(tenant for task in self._tasks for tenant in task)


@dataclass(slots=True)
class Turns:
    """The jobs of one process."""

    # Slots to be lent. There is one more for each worker and kind of those that are well, one for
    # those apart, and one for who is alone.
    slots: int = 26
    follow_s: float = 2.0
    time_box_s: float = 5.0
    worker_count: int = 2
    # An executor that has nothing to do is not there for others either.
    worker_count_min: int = 1
    running: list[Turn] = field(default_factory=list)
    _next_s: dict[JobKind, float] = field(default_factory=dict)
    # The same for each tenant that had a job of that kind, later if it had a crowd in it.
    _own_next_s: defaultdict[JobKind, dict[str, float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # What workers have had of late.
    _times: ProcessorTime = field(default_factory=lambda: ProcessorTime(0.0, 0.0))
    # How many workers those who are well share just now, by what these have had, and when that was.
    _sharing: int = 0
    _ran_s: float = 0.0
    _ran_until_s: float = 0.0

    def __post_init__(self) -> None:
        # All of them, until it is known what there is to do.
        self._sharing, self._ran_s = self.worker_count, self.worker_count * _MEAN_S

    def workers(self, kind: JobKind) -> int:
        """How many workers share what is of this kind."""
        return self._sharing if kind is JobKind.SHARED else self.worker_count

    @property
    def opens_s(self) -> float:
        """When those who are well may have a job again."""
        own = self._own_next_s[JobKind.SHARED]
        return max(self._next_s.get(JobKind.SHARED, 0.0), min(own.values(), default=0.0))

    def may_start(self, kind: JobKind, tenant: str, *, now_s: float) -> bool:
        """Whether another job of this kind may have destinations of that tenant."""
        fresh = self._fresh(kind, now_s)
        if kind is JobKind.SHARED:
            # A destination that does not answer counts against its own tenant alone.
            fresh = [turn for turn in fresh if turn.only_tenant in {"", tenant}]
        most = self.worker_count * _FRESH_MAX.get(kind, inf)
        if kind is JobKind.SHARED and self._stretch > _CROWDED:
            # Those that are all but done have left the processors to others.
            fresh, most = [turn for turn in fresh if turn.open_part > _OPEN_PART], self._sharing
        next_s = max(self._next_s.get(kind, 0.0), self._own_next_s[kind].get(tenant, 0.0))
        return len(fresh) < most and now_s >= next_s

    def learn(self, kind: JobKind, ends: Sequence[TaskEnd], *, now_s: float) -> None:
        """Tasks have ended, whose workers may have had to wait for a processor."""
        for _, times in ends:
            ran_s, delayed_s = self._times
            self._times = ProcessorTime(
                _KEPT_PART * ran_s + times.ran_s, _KEPT_PART * delayed_s + times.delayed_s
            )
        if kind is JobKind.SHARED:
            kept = exp((self._ran_until_s - now_s) / _MEAN_S)
            self._ran_s = kept * self._ran_s + sum(times.ran_s for _, times in ends)
            self._ran_until_s = now_s
            self._share_out()

    @property
    def _cores(self) -> float:
        """How much of a processor those who are well have had of late."""
        return self._ran_s / _MEAN_S

    @property
    def _spare(self) -> float:
        """What part of the processor time that their workers are worth was not needed."""
        return max(0.0, 1 - self._cores / (_WORTH_CORES * self._sharing))

    def _share_out(self) -> None:
        cores = self._cores
        if cores > _WORTH_CORES * self._sharing:
            self._sharing = min(self.worker_count, self._sharing + 1)
        elif cores < _LESS_PART * _WORTH_CORES * (self._sharing - 1):
            self._sharing = max(self.worker_count_min, self._sharing - 1)

    @property
    def _stretch(self) -> float:
        """How many times as long as on a machine of their own workers need for what they do."""
        return self._times.busy_s / self._times.ran_s if self._times.ran_s else 1.0

    def held(self, *, now_s: float) -> list[Turn]:
        """Jobs that wait for somebody who hangs."""
        return [turn for turn in self.running if self.is_held(turn, now_s=now_s)]

    def is_held(self, turn: Turn, *, now_s: float) -> bool:
        """Whether a job waits for somebody who hangs.

        Where processors are short all jobs take longer. To take that for a hanging destination
        would make it worse: each would have more jobs beside it.
        """
        patience_s = min(self.time_box_s, PATIENCE_S * self._stretch)
        return now_s > turn.ends_s + max(PATIENCE_S, patience_s)

    def follows_s(self, *, now_s: float) -> float:
        """How long a job that begins now follows its logs: all of them end together."""
        left_s = -now_s % self.follow_s
        return left_s if left_s > self.follow_s / 4 else left_s + self.follow_s

    @property
    def follows_s_max(self) -> float:
        """The longest that any job follows its logs, if it is told no more."""
        return (1 + _DUE_PART) * self.follow_s

    def due(self, *, now_s: float) -> list[Turn]:
        """Jobs that follow their logs and are to be told by now if they may go on.

        Where there are two of a worker they end together, as one goes on with all.
        """
        following = [
            turn
            for turn in self.running
            if turn.job.kind is JobKind.FOLLOWING and not self.is_held(turn, now_s=now_s)
        ]
        count = Counter(turn.job.worker for turn in following)
        return [
            turn
            for turn in following
            if _JOIN_S < turn.ends_s - now_s <= _DUE_PART * self.follow_s
            and turn.ends_s - turn.since_s < (_TERMS_MAX - 0.5) * self.follow_s
            and turn.slot_count
            and count[turn.job.worker] == 1
            # A slot that is not lent is for whoever has none.
            and not (turn.is_last or turn.job.is_hurried)
        ]

    def prolong(self, turn: Turn) -> float:
        """It goes on as it is; returns how long it follows its logs in all."""
        turn.ends_s += self.follow_s
        return turn.ends_s - turn.since_s

    def is_joined_soon(self, worker: int | None, *, now_s: float) -> bool:
        """Whether others of a worker that follow their logs are about to end, and go on with it."""
        return any(
            turn.ends_s - _JOIN_S < now_s < turn.ends_s + _JOIN_S
            for turn in self.running
            if turn.job.kind is JobKind.FOLLOWING and turn.job.worker == worker
        )

    def pause(self, kind: JobKind, counts: Mapping[str, int], *, now_s: float) -> None:
        """The next job of this kind waits: longer if this one has many strands."""
        if kind is JobKind.ALONE:
            return
        # Where no slot is lent all have to share the one that each kind has.
        most = _OTHERS_MAX if self.slots else max(counts.values(), default=0)
        few = {tenant: min(count, most) for tenant, count in counts.items()}
        total, running = sum(few.values()), len(self._fresh(kind, now_s))
        self._next_s[kind] = now_s + self._pause_s(kind, total, running)
        for tenant, count in counts.items():
            with_its_crowd = total - few[tenant] + count
            pause_s = self._pause_s(kind, with_its_crowd, running)
            self._own_next_s[kind][tenant] = now_s + pause_s

    def _pause_s(self, kind: JobKind, strand_count: int, running: int) -> float:
        crowd_s = (_STRAND_S + _STRANDS_S * strand_count) * strand_count
        most_s = _MOST_S * (1 + _SPARE_STRETCH * self._spare)
        wait_s = min(most_s, _LEAST_S + crowd_s)
        wait_s *= min(_WAIT_STRETCH_MAX, max(1.0, self._stretch / _CROWDED))
        if kind is JobKind.APART:
            return max(_APART_S, wait_s)
        return wait_s + _RUNNING_S * running

    def grants(
        self, kind: JobKind, worker: int | None, tenants: Collection[str], *, now_s: float
    ) -> Iterator[Grant]:
        """The jobs of these tenants that may start; each is to be started before the next."""
        lent = [turn for turn in self.running if not turn.job.is_hurried]
        left = self.slots - sum(turn.slot_count for turn in lent)
        lent_to = self.lent_to(now_s=now_s)
        # A tenant has no more than it leaves.
        over = {each for each in tenants if lent_to[each] >= left}
        if patient := set(tenants) - over:
            most = left - max(lent_to[each] for each in patient)
            yield Grant(patient, 1 if kind in _WELL else most)
        if kind is JobKind.APART:
            # Whoever has some already waits for those: it may be slow, and no more than that.
            over = {each for each in over if not lent_to[each]}
        own = {
            (turn.job.kind, turn.job.worker)
            for turn in self.running
            if turn.job.is_hurried and turn.slot_count
        }
        if over and (kind, worker) not in own:
            yield Grant(over, is_hurried=True)

    def start(self, job: Job, tenants: Mapping[str, str], *, now_s: float) -> Turn:
        """A job begins, with the tenants of its destinations."""
        strands = {
            strand: (number, tenants[strand.destination])
            for number, units in enumerate(job.tasks)
            for unit in units
            for strand in unit.strands
        }
        tasks = [Counter[str]() for _ in job.tasks]
        for number, tenant in strands.values():
            tasks[number][tenant] += 1
        box_s = self.time_box_s if job.kind is JobKind.ALONE else 0.0
        ends_s = now_s + job.follow_s + box_s
        self.running.append(turn := Turn(job, now_s, ends_s, tasks, strands, len(strands)))
        return turn

    def end(self, job: Job) -> None:
        self.running = [turn for turn in self.running if turn.job is not job]

    def _fresh(self, kind: JobKind, now_s: float) -> list[Turn]:
        of_kind = (turn for turn in self.running if turn.job.kind is kind)
        return [turn for turn in of_kind if not self.is_held(turn, now_s=now_s)]

    def lent_to(self, *, now_s: float) -> Counter[str]:
        """How many slots each tenant has; of those that are well each is done in a moment."""
        lent_to: Counter[str] = Counter()
        for turn in self.running:
            is_short = turn.job.kind in _WELL and not self.is_held(turn, now_s=now_s)
            if not turn.job.is_hurried and not is_short:
                lent_to.update(turn.slots_by_tenant)
        return lent_to
