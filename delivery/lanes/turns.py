"""Chooses which jobs may start: few when there is little to do, and none without a place.

A destination that does not answer takes up a place, which is room for one Spark task, for the
longest wait that is allowed. So some places are for hurried jobs. The others are lent: a tenant
gets no more than it leaves free (ADR 0062).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import exp, inf
from typing import NamedTuple

from delivery.lanes.units import PATIENCE_S, Job, JobKind, Strand, TaskEnd
from shared.runtime.spark.processor_time import ProcessorTime

# A worker has at most this many fresh jobs, which no hanging destination holds up yet. More would
# be more work than can be done, and each concurrent job is another process, with connections of its
# own to all destinations.
_FRESH_MAX = {JobKind.SHARED: 2, JobKind.FOLLOWING: 5}
# When workers lack processors and take 1.5 times as long as they need, each has one fresh job at a
# time: a job counts until it is half done. And jobs wait longer for more strands, up to 4 times.
_CROWDED, _OPEN_PART, _WAIT_STRETCH_MAX = 1.5, 0.5, 4.0
# The weight of earlier measurements relative to the next task's.
_KEPT_PART = 0.8
# Each shared worker has jobs of its own, which cost as much for few strands as for many. So there
# is one worker for each 0.3 cores that tasks used lately. A worker is dropped only if the tasks use
# less than 85 % of 0.3 cores for each remaining worker. So a process that uses a fifth of a core
# has one worker.
_WORTH_CORES, _LESS_PART, _MEAN_S = 0.3, 0.85, 5.0
# A job costs Spark 8 ms of processor time, so it pays to wait until more strands have events. A few
# strands go at once; from about two hundred strands a second on, the wait is at its longest.
# Each fresh job that still waits makes the next one wait a bit longer, too.
_LEAST_S, _STRAND_S, _STRANDS_S, _MOST_S = 0.03, 0.002, 0.0001, 0.4
# All strands of a tenant lengthen its wait, and at most this many strands of each other tenant.
_OTHERS_MAX = 8
# Where a fleet shares the work, each worker has less of it, but a job costs the same. So a job
# waits longer for more strands, by up to this part of the longest wait.
_SPARE_STRETCH = 0.75
_RUNNING_S = 0.05
# Real-time jobs that end together continue as one, because each additional job is another process.
# Nobody waits for a job that ends later than this.
_JOIN_S = 0.2
# A job that follows its logs may be prolonged by the time for which it follows, up to 5 such times
# in all. This is decided when about a third of such a time is left. The events that it has read
# are counted only with its report.
_DUE_PART, _TERMS_MAX = 0.35, 5
# Slow destinations do not need frequent jobs.
_APART_S = 0.25
# The kinds of jobs for healthy destinations. A destination always has the same worker, which takes
# one task of each job.
_WELL = frozenset({JobKind.SHARED, JobKind.FOLLOWING})
# The kinds of jobs that can wait while processors are scarce.
_PATIENT = frozenset({JobKind.SHARED, JobKind.APART})


class Grant(NamedTuple):
    """A job that may start now."""

    tenants: Collection[str]
    task_count_max: int = 1
    # Whether the job has a place that is not lent.
    is_hurried: bool = False


@dataclass(slots=True, eq=False)
class Turn:
    """A job under way."""

    job: Job
    since_s: float
    # When it would end if it waited for nobody.
    ends_s: float
    # For each task: how many strands of each tenant it still waits for. Below: those strands.
    _tasks: list[Counter[str]]
    _strands: dict[Strand, tuple[int, str]]
    _strand_count: int
    # Whether a job that follows its logs is not prolonged: others join it, or orders have changed.
    is_last: bool = False
    # When `ended_lately_s` last saw fewer open strands, and how many it saw.
    _seen_s: float = 0.0
    _seen_count: int = 0

    def __post_init__(self) -> None:
        self._seen_s, self._seen_count = self.since_s, len(self._strands)

    def ended_lately_s(self, *, now_s: float) -> float:
        """Return when it was first seen with as few open strands as now."""
        if self.open_count != self._seen_count:
            self._seen_s, self._seen_count = now_s, self.open_count
        return self._seen_s

    def done(self, strand: Strand) -> None:
        """Stop waiting for a strand."""
        if strand in self._strands:
            number, tenant = self._strands.pop(strand)
            self._tasks[number] -= Counter({tenant: 1})

    @property
    def only_tenant(self) -> str:
        """The one tenant whose destinations it still waits for; empty if none, or several."""
        only = ""
        for tenant in chain.from_iterable(self._tasks):
            if only not in {"", tenant}:
                return ""
            only = tenant
        return only

    @property
    def open_count(self) -> int:
        return len(self._strands)

    @property
    def open_part(self) -> float:
        """The fraction of its strands that it still waits for."""
        return self.open_count / self._strand_count

    @property
    def place_count(self) -> int:
        return sum(map(bool, self._tasks))

    @property
    def places_by_tenant(self) -> Counter[str]:
        """The number of places that each tenant uses, alone or with other tenants."""
        return Counter(tenant for task in self._tasks for tenant in task)


@dataclass(slots=True)
class Turns:
    """The jobs of one process."""

    # Places to lend. Other places do not count here: one for each worker and kind of healthy job,
    # one for jobs of kind APART, and one for jobs of kind ALONE.
    places: int = 26
    follow_s: float = 2.0
    time_box_s: float = 5.0
    worker_count: int = 2
    # The fewest workers: leaving an executor idle would help nobody else.
    worker_count_min: int = 1
    running: list[Turn] = field(default_factory=list)
    _next_s: dict[JobKind, float] = field(default_factory=dict)
    # When each tenant may have its next job of a kind: later if it had many strands in the last.
    _own_next_s: defaultdict[JobKind, dict[str, float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # Recent processor time of the workers.
    _times: ProcessorTime = field(default_factory=lambda: ProcessorTime(0.0, 0.0))
    # How many workers healthy destinations share now; their recent processor time, and as of when.
    _sharing: int = 0
    _ran_s: float = 0.0
    _ran_until_s: float = 0.0

    def __post_init__(self) -> None:
        # All workers share the jobs until the load is known.
        self._sharing, self._ran_s = self.worker_count, self.worker_count * _MEAN_S

    def workers(self, kind: JobKind) -> int:
        """Return how many workers share the jobs of this kind."""
        return self._sharing if kind is JobKind.SHARED else self.worker_count

    @property
    def opens_s(self) -> float:
        """When healthy destinations may have a job again."""
        own = self._own_next_s[JobKind.SHARED]
        return max(self._next_s.get(JobKind.SHARED, 0.0), min(own.values(), default=0.0))

    def may_start(self, kind: JobKind, tenant: str, *, now_s: float) -> bool:
        """Say whether another job of this kind may have destinations of that tenant."""
        fresh, most = self._fresh(kind, now_s), self.worker_count * _FRESH_MAX.get(kind, inf)
        if kind in _PATIENT:
            # A destination that does not answer counts against its own tenant alone.
            fresh = [turn for turn in fresh if turn.only_tenant in {"", tenant}]
            if self._stretch > _CROWDED:
                # Jobs that are nearly done leave the processors to others.
                fresh = [turn for turn in fresh if turn.open_part > _OPEN_PART]
                most = self.workers(kind)
        next_s = max(self._next_s.get(kind, 0.0), self._own_next_s[kind].get(tenant, 0.0))
        return len(fresh) < most and now_s >= next_s

    def learn(self, kind: JobKind, ends: Sequence[TaskEnd], *, now_s: float) -> None:
        """Learn from ended tasks how long their workers waited for a processor."""
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
        """The cores that healthy destinations have used lately."""
        return self._ran_s / _MEAN_S

    @property
    def _spare(self) -> float:
        """The fraction of the shared workers' cores, at _WORTH_CORES each, that is not used."""
        return max(0.0, 1 - self._cores / (_WORTH_CORES * self._sharing))

    def _share_out(self) -> None:
        cores = self._cores
        if cores > _WORTH_CORES * self._sharing:
            self._sharing = min(self.worker_count, self._sharing + 1)
        elif cores < _LESS_PART * _WORTH_CORES * (self._sharing - 1):
            self._sharing = max(self.worker_count_min, self._sharing - 1)

    @property
    def _stretch(self) -> float:
        """The factor by which workers take longer than on a machine of their own."""
        return self._times.busy_s / self._times.ran_s if self._times.ran_s else 1.0

    def hanging(self, *, now_s: float) -> list[Turn]:
        """Return the jobs that wait for a destination that hangs."""
        return [turn for turn in self.running if self.hangs(turn, now_s=now_s)]

    def hangs(self, turn: Turn, *, now_s: float) -> bool:
        """Say whether a job waits for a destination that hangs: none of its strands ends any more.

        A job of hundreds of strands takes seconds when processors are scarce. If that were mistaken
        for a hanging destination, even more jobs would start, and make the shortage worse. But
        strands that end one by one for longer than a time box must not hold up others, either.
        """
        patience_s = PATIENCE_S * max(1.0, self._stretch)
        stuck_s = max(turn.ends_s, turn.ended_lately_s(now_s=now_s)) + patience_s
        return now_s > min(stuck_s, turn.ends_s + max(PATIENCE_S, self.time_box_s))

    def follows_s(self, *, now_s: float) -> float:
        """Return how long a job that begins now follows its logs: all such jobs end together."""
        left_s = -now_s % self.follow_s
        return left_s if left_s > self.follow_s / 4 else left_s + self.follow_s

    @property
    def follows_s_max(self) -> float:
        """The longest that any job follows its logs, if nothing prolongs it further."""
        return (1 + _DUE_PART) * self.follow_s

    def due(self, *, now_s: float) -> list[Turn]:
        """Return the jobs that follow their logs and must now be told whether they may continue.

        Two jobs of one worker end together, and one new job continues with all their strands.
        """
        following = [
            turn
            for turn in self.running
            if turn.job.kind is JobKind.FOLLOWING and not self.hangs(turn, now_s=now_s)
        ]
        count = Counter(turn.job.worker for turn in following)
        return [
            turn
            for turn in following
            if _JOIN_S < turn.ends_s - now_s <= _DUE_PART * self.follow_s
            and turn.ends_s - turn.since_s < (_TERMS_MAX - 0.5) * self.follow_s
            and turn.place_count
            and count[turn.job.worker] == 1
            # Places that are not lent are for tenants without any.
            and not (turn.is_last or turn.job.is_hurried)
        ]

    def prolong(self, turn: Turn) -> float:
        """Let a job continue unchanged; return how long it follows its logs in all."""
        turn.ends_s += self.follow_s
        return turn.ends_s - turn.since_s

    def is_joined_soon(self, worker: int | None, *, now_s: float) -> bool:
        """Say whether real-time jobs of a worker are about to end, and can continue as one."""
        return any(
            turn.ends_s - _JOIN_S < now_s < turn.ends_s + _JOIN_S
            for turn in self.running
            if turn.job.kind is JobKind.FOLLOWING and turn.job.worker == worker
        )

    def pause(self, kind: JobKind, counts: Mapping[str, int], *, now_s: float) -> None:
        """Make the next job of this kind wait: longer if this one has many strands."""
        if kind is JobKind.ALONE:
            return
        # Without places to lend, all tenants must share the one place of each kind.
        most = _OTHERS_MAX if self.places else max(counts.values(), default=0)
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
        """Yield the jobs of these tenants that may start; start each before asking for the next."""
        lent = [turn for turn in self.running if not turn.job.is_hurried]
        left = self.places - sum(turn.place_count for turn in lent)
        lent_to = self.lent_to(now_s=now_s)
        # A tenant may have no more places than it leaves free.
        over = {each for each in tenants if lent_to[each] >= left}
        if patient := set(tenants) - over:
            most = left - max(lent_to[each] for each in patient)
            yield Grant(patient, 1 if kind in _WELL else most)
        if kind is JobKind.APART:
            # Tenants that already have places wait for those, which may be merely slow.
            over = {each for each in over if not lent_to[each]}
        own = {
            (turn.job.kind, turn.job.worker)
            for turn in self.running
            if turn.job.is_hurried and turn.place_count
        }
        if over and (kind, worker) not in own:
            yield Grant(over, is_hurried=True)

    def start(self, job: Job, tenants: Mapping[str, str], *, now_s: float) -> Turn:
        """Begin a job, with the tenants of its destinations."""
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
        return [turn for turn in of_kind if not self.hangs(turn, now_s=now_s)]

    def lent_to(self, *, now_s: float) -> Counter[str]:
        """Count each tenant's places, except those of healthy jobs, which are done in a moment."""
        lent_to: Counter[str] = Counter()
        for turn in self.running:
            is_short = turn.job.kind in _WELL and not self.hangs(turn, now_s=now_s)
            if not turn.job.is_hurried and not is_short:
                lent_to.update(turn.places_by_tenant)
        return lent_to
