"""Plans which pipelines work next, and which of them share a job. Pure.

Healthy pipelines share a job, as a job costs more than the few events that most of them have
at a time. A pipeline that is far behind, fails or is slow has its own jobs, and rejoins by itself.
So a failing one delays no other, and a large one takes only its share of the processors.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from pipelines.lanes.gathering import Gathering
from pipelines.lanes.lane import PipelineLane
from pipelines.lanes.offenders import Offenders
from pipelines.lanes.portions import PipelinePortion, PlannedJob
from pipelines.windows.frontier import MARGIN_MS
from shared.event.record import KafkaPartition, Position, Ranges
from shared.runtime.kafka.leases.fenced_positions import Reach

# How many events of each Kafka partition a shared job takes: a fraction of a second's work.
SHARED_EVENTS_MAX = 2_000
# How many portions a job may have: each adds a source and a branch to the job's plan.
PORTIONS_MAX = 8
# One job is planned while another runs; pipelines that become ready meanwhile share the next.
SHARED_JOBS_MAX = 2
# Into how many parts a range is cut to find the event that fails: two, or more where each failure
# costs an executor.
_PARTS, _PARTS_OF_OFFENDERS = 2, 8
# Work that Kafka holds up is tried again after 0, 1, 3, 7, 15 and then every 30 s.
_WAIT_S_MAX = 30.0


@dataclass(slots=True)
class PipelineBook:
    """The state of each pipeline that is ours and runs."""

    events_max: int
    time_box_s: float
    own_jobs_max: int
    sink_jobs_max: int = 4
    lanes: dict[str, PipelineLane] = field(default_factory=dict)
    ends: dict[KafkaPartition, int] = field(default_factory=dict)
    # When `ends` were fetched, by the brokers' clock.
    asked_ms: dict[KafkaPartition, int] = field(default_factory=dict)
    # Pipelines that start nothing until their tasks, which ignore cancellation, have ended.
    waiting: Collection[str] = frozenset()
    offenders: Offenders = field(default_factory=Offenders)
    # True after an executor has ended, until a job is done.
    _is_cold: bool = False
    _planned_s: float = -inf
    _lives: int = 0
    _shared_count: int = 0
    _own_count: int = 0
    # How many of the own jobs read archives.
    _archive_count: int = 0
    _sink_count: int = 0

    def enter(
        self,
        lane_id: str,
        tenant: str,
        reaches: Mapping[KafkaPartition, Reach],
        gathering: Gathering | None = None,
        *,
        keeps: int = 0,
    ) -> None:
        """Start a lane, or more of its Kafka partitions, at these positions."""
        if lane_id not in self.lanes:
            self._lives += 1
            most = self.events_max if gathering is None else gathering.most
            lane = PipelineLane(lane_id, tenant, self._lives, most, gathering, keeps)
            # Its turn comes after the lanes that are already waiting.
            lane.last_s = self._planned_s
            self.lanes[lane_id] = lane
        lane = self.lanes[lane_id]
        lane.reaches = {**reaches, **lane.reaches}

    def leave(self, lane_id: str) -> None:
        self.lanes.pop(lane_id, None)

    def is_ours(self, portion: PipelinePortion) -> bool:
        """Say whether the portion still belongs to a lane of this process."""
        lane = self.lanes.get(portion.lane_id)
        return lane is not None and lane.life == portion.life

    def see_ends(self, ends: Position, asked_ms: int = 0) -> list[tuple[str, KafkaPartition]]:
        """Record where logs end; return lanes beyond an end, where Kafka has lost records."""
        self.ends |= ends
        self.asked_ms |= dict.fromkeys(ends, asked_ms)
        return [
            (lane.id, where)
            for lane in self.lanes.values()
            for where, reach in lane.reaches.items()
            if where in ends and reach.at > ends[where] and not lane.is_under_way
        ]

    def move(self, lane_id: str, where: KafkaPartition, at: int) -> None:
        """Continue at this offset, even if that skips events."""
        if lane_id in self.lanes:
            until = min(self.lanes[lane_id].reaches[where].until, self.ends.get(where, at))
            self.lanes[lane_id].reaches[where] = Reach(at, max(at, until))
            self.lanes[lane_id].earlier.reached(where, at)

    def news(self, lane_id: str) -> dict[KafkaPartition, int]:
        """Return the count of unread offsets, for each Kafka partition that has any."""
        lane = self.lanes[lane_id]
        limits = self.ends if lane.limits is None else lane.limits
        ends = {where: min(self.ends.get(where, 0), limits.get(where, 0)) for where in lane.reaches}
        counts = {where: ends[where] - reach.at for where, reach in lane.reaches.items()}
        return {where: count for where, count in counts.items() if count > 0}

    def _ready(self, lane: PipelineLane) -> dict[KafkaPartition, int]:
        """The lane's unread offsets, as far as they are known to be in one place."""
        return lane.earlier.ready(self.news(lane.id), lane.position)

    def until_ms(self, lane_id: str, ranges: Ranges) -> dict[KafkaPartition, int]:
        """Return, for logs that these ranges read to their ends, when those ends were fetched."""
        ats = {where: reach.at for where, reach in self.lanes[lane_id].reaches.items()}
        ats |= {where: end for where, (_, end) in ranges.items()}
        return {
            where: self.asked_ms[where]
            for where, at in ats.items()
            if where in self.asked_ms and at >= self.ends[where]
        }

    def _read_ms(self, lane: PipelineLane) -> int:
        """The time up to which the whole stream has been read, if it was read to its end."""
        until_ms = self.until_ms(lane.id, {})
        is_all = until_ms.keys() == lane.reaches.keys()
        return min(until_ms.values(), default=0) - MARGIN_MS if is_all else 0

    def closes_at(self, portion: PipelinePortion, at_ms: int | None) -> None:
        """Set the time up to which all must be read before the lane writes without an event."""
        if self.is_ours(portion):
            self.lanes[portion.lane_id].closes_at_ms = at_ms

    def to_close(self, now_s: float, leaving: Collection[str] = ()) -> list[PlannedJob]:
        """Plan jobs for lanes that have read everything and have something due by time alone."""
        due = [
            lane
            for lane in self.lanes.values()
            if lane.closes_at_ms is not None
            and not (lane.id in leaving or lane.is_under_way or now_s < lane.not_before_s)
            and not self.news(lane.id)
            and lane.closes_at_ms <= self._read_ms(lane)
        ]
        for lane in due:
            lane.is_under_way = True
        return [
            PlannedJob((portion,), is_shared=False, is_quick=True)
            for it in due
            for until_ms in [self.until_ms(it.id, {})]
            for portion in [PipelinePortion(it.id, {}, it.life, read_until_ms=until_ms)]
        ]

    def plan(self, now_s: float, leaving: Collection[str] = ()) -> list[PlannedJob]:
        """Return the jobs to start now; their lanes are under way until the jobs have ended.

        Lanes in `leaving` get no job.
        """
        self._planned_s = now_s
        free = [
            lane
            for lane in self.lanes.values()
            if not (lane.id in leaving or lane.id in self.waiting) and self._may_start(lane, now_s)
        ]
        free.sort(key=lambda lane: lane.last_s)
        elsewhere = self._elsewhere([lane for lane in free if lane.gathering is not None])
        free = [lane for lane in free if lane.gathering is None]
        well = [lane for lane in free if not self._goes_alone(lane)]
        jobs: list[tuple[list[PipelineLane], bool]] = [
            (well[at : at + PORTIONS_MAX], True) for at in range(0, len(well), PORTIONS_MAX)
        ][: SHARED_JOBS_MAX - self._shared_count]
        jobs += [([lane], False) for lane in self._alone(free)]
        for _, is_shared in jobs:
            self._shared_count += is_shared
            self._own_count += not is_shared
        self._sink_count += len(elsewhere)
        return [
            PlannedJob(
                tuple(self._begun(lane, now_s, is_shared=is_shared) for lane in lanes), is_shared
            )
            for lanes, is_shared in jobs
        ] + [
            PlannedJob((self._begun_elsewhere(lane, now_s),), is_shared=False, is_elsewhere=True)
            for lane in elsewhere
        ]

    def _may_start(self, lane: PipelineLane, now_s: float) -> bool:
        is_free = not lane.is_under_way and now_s >= lane.not_before_s
        if not is_free or not (news := self._ready(lane)):
            return False
        if (gathering := lane.gathering) is None:
            return True
        lane.news_since_s = min(lane.news_since_s, now_s)
        is_again = any(reach.until > reach.at for reach in lane.reaches.values())
        # An archive gets no more of these events, so waiting gains nothing.
        has_much = max(news.values()) >= lane.events_max or bool(lane.earlier.borders)
        return is_again or has_much or now_s - lane.news_since_s >= gathering.linger_s

    def _goes_alone(self, lane: PipelineLane) -> bool:
        most = max(self._ready(lane).values())
        is_apart = lane.keeps or lane.is_apart or lane.cut_to or lane.earlier.borders
        is_apart = is_apart or lane.is_suspect
        return bool(is_apart) or most > SHARED_EVENTS_MAX

    def _alone(self, lanes: list[PipelineLane]) -> list[PipelineLane]:
        """The lanes that start own jobs now; archive reads take at most half of the places."""
        room = max(1, self.own_jobs_max // 2) - self._archive_count
        begins: list[PipelineLane] = []
        for lane in self._in_turn([lane for lane in lanes if self._goes_alone(lane)]):
            if lane.earlier.borders:
                if room <= 0:
                    continue
                room -= 1
            begins.append(lane)
        return begins[: self.own_jobs_max - self._own_count]

    def _elsewhere(self, lanes: list[PipelineLane]) -> list[PipelineLane]:
        """The lanes that start sink jobs now; failing lanes take at most half of the places."""
        failing = sum(lane.deaths > 0 for lane in self._under_way_elsewhere())
        begins: list[PipelineLane] = []
        for lane in self._in_turn(lanes):
            if self._sink_count + len(begins) >= self.sink_jobs_max:
                break
            if lane.deaths:
                if failing >= self.sink_jobs_max // 2:
                    continue
                failing += 1
            begins.append(lane)
        return begins

    def _under_way_elsewhere(self) -> list[PipelineLane]:
        return [it for it in self.lanes.values() if it.gathering is not None and it.is_under_way]

    def _in_turn(self, lanes: list[PipelineLane]) -> list[PipelineLane]:
        """Sort so that a tenant's second lane comes after the first of each other tenant."""
        counts = Counter(lane.tenant for lane in self.lanes.values() if lane.is_under_way)
        ranks = {}
        for lane in lanes:
            counts[lane.tenant] += 1
            ranks[lane.id] = counts[lane.tenant]
        return sorted(lanes, key=lambda lane: ranks[lane.id])

    def _begun(self, lane: PipelineLane, now_s: float, *, is_shared: bool) -> PipelinePortion:
        lane.is_under_way, lane.last_s = True, now_s
        news = self._ready(lane)
        if cut := next((where for where in lane.cut_to if where in news), None):
            news = {cut: min(news[cut], lane.cut_to[cut])}
        most = min(lane.events_max, SHARED_EVENTS_MAX if is_shared else lane.keeps or inf)
        begins = {where: lane.reaches[where].at for where in news}
        earlier = lane.earlier.pieces(begins)
        self._archive_count += bool(earlier)
        ranges = {place: (at, at + int(min(news[place], most))) for place, at in begins.items()}
        untils = {where: lane.reaches[where].until for where in news}
        for where, (begin, end) in ranges.items():
            lane.reaches[where] = Reach(begin, max(end, untils[where]))
        repeats = {where: until for where, until in untils.items() if until > begins[where]}
        read_ms = self.until_ms(lane.id, ranges)
        return PipelinePortion(lane.id, ranges, lane.life, repeats, read_ms, earlier=earlier)

    def _begun_elsewhere(self, lane: PipelineLane, now_s: float) -> PipelinePortion:
        """Repeat a range exactly if it may have been written: a sink knows repeats by the range."""
        lane.is_under_way, lane.last_s, lane.news_since_s = True, now_s, inf
        ranges, repeats = {}, {}
        news = self._ready(lane)
        if cut := next((where for where in lane.cut_to if where in news), None):
            news = {cut: news[cut]}
        for where, count in news.items():
            at, until, *_ = lane.reaches[where]
            # Stay within the log: Kafka may have lost its end, or its beginning.
            most = min(count, until - at if until > at else lane.events_max)
            end = at + min(most, lane.cut_to.get(where, most))
            ranges[where] = (at, end)
            lane.reaches[where] = Reach(at, end)
            if until > at:
                repeats[where] = min(until, end)
        earlier = lane.earlier.pieces({where: at for where, (at, _) in ranges.items()})
        return PipelinePortion(lane.id, ranges, lane.life, repeats, is_fixed=True, earlier=earlier)

    def over(self, job: PlannedJob) -> None:
        """Free the places of a job that has ended, whether it has succeeded or not."""
        self._shared_count -= job.is_shared
        self._sink_count -= job.is_elsewhere
        self._own_count -= not (job.is_shared or job.is_elsewhere or job.is_quick)
        self._archive_count -= not job.is_elsewhere and job.portions[0].is_archived
        for lane, _ in self._still_ours(job):
            lane.is_under_way = False

    def _still_ours(self, job: PlannedJob) -> list[tuple[PipelineLane, PipelinePortion]]:
        return [(self.lanes[it.lane_id], it) for it in job.portions if self.is_ours(it)]

    def done(self, job: PlannedJob, took_s: float, now_s: float, *, is_well: bool = True) -> None:
        """Advance: all rows are stored. If not `is_well`, the job's one event ended an executor."""
        self._rest_from(now_s, has_worked=is_well and not job.is_quick)
        for lane, portion in self._still_ours(job):
            most, box_s = self.events_max, self.time_box_s
            if lane.gathering is not None:
                most, box_s = lane.gathering.most, lane.gathering.time_box_s
            is_slow, is_quick = took_s > box_s, took_s < box_s / 2
            for where, (_, end) in portion.ranges.items():
                lane.reaches[where] = Reach(end, max(end, lane.reaches[where].until))
                lane.earlier.reached(where, end)
                if is_well and end < (guilty_to := lane.guilty_to.get(where, end)):
                    # An event that was given up for another reason may have cut the range further.
                    rest = (guilty_to - end) // _PARTS_OF_OFFENDERS
                    lane.cut_to[where] = max(lane.cut_to.get(where, 1), rest)
                    continue
                lane.guilty_to.pop(where, None)
                cut = 2 * lane.cut_to.pop(where, SHARED_EVENTS_MAX)
                if cut < SHARED_EVENTS_MAX:
                    lane.cut_to[where] = cut
            lane.deaths, lane.went_on_s = 0, now_s
            if is_well:
                lane.trust()
                lane.is_suspect |= self.offenders.are_many(lane.tenant, now_s)
                until_s = self.offenders.rests_until_s(lane.tenant)
                lane.not_before_s = until_s if lane.is_suspect else -inf
            if lane.gathering is not None:
                lane.rest_until(lane.last_s + lane.gathering.rests_s(portion.count))
            lane.is_apart = is_slow or (lane.is_apart and not is_quick)
            if is_slow and job.is_of_one:
                lane.events_max = max(1, lane.events_max // 2)
            elif is_quick:
                lane.events_max = min(most, 2 * lane.events_max)

    def _rest_from(self, now_s: float, *, has_worked: bool) -> None:
        """Begin suspects' rests after a new executor's first job: before it, no lane worked."""
        if not (self._is_cold and has_worked):
            return
        self._is_cold = False
        for lane in self.lanes.values():
            if lane.is_suspect and not lane.is_under_way:
                lane.rest_until(now_s + lane.rests_s)
            lane.rests_s = 0.0

    def failed(self, job: PlannedJob) -> None:
        """Try each pipeline of the job alone, with fewer events: one of them cannot continue."""
        for lane, portion in self._still_ours(job):
            lane.is_apart = True
            if job.is_of_one:
                # The progress of a sink's other ranges is unknown: do not cut them.
                parts = _PARTS_OF_OFFENDERS if lane.is_suspect else _PARTS
                parts = 1 if portion.is_fixed and len(portion.ranges) > 1 else parts
                for where, (begin, end) in portion.ranges.items():
                    lane.cut_to[where] = max(1, (end - begin) // parts)

    def is_at_work(self, lane_ids: Collection[str]) -> bool:
        return any(lane in self.lanes and self.lanes[lane].is_under_way for lane in lane_ids)

    def is_suspect(self, job: PlannedJob) -> bool:
        return any(lane.is_suspect for lane, _ in self._still_ours(job))

    def suspect(self, job: PlannedJob, now_s: float) -> None:
        """Try each pipeline at work alone: one of them has ended the executor."""
        self._is_cold = True
        for lane, _ in self._still_ours(job):
            lane.suspect(now_s)

    def offended(self, job: PlannedJob, now_s: float) -> float:
        """Let others go first, as this job has ended an executor; return the length of its rest."""
        self._is_cold = True
        until_s = now_s
        for lane, portion in self._still_ours(job):
            lane.offences += 1
            lane.guilty_to |= {where: end for where, (_, end) in portion.ranges.items()}
            until_s = self.offenders.ended_one(lane.tenant, lane.id, now_s)
            are_many = self.offenders.are_many(lane.tenant, now_s)
            for other in self.lanes.values():
                if other.tenant == lane.tenant and (other.is_suspect or are_many):
                    other.is_apart = other.is_suspect = True
                    other.rest_after_end(now_s, until_s)
        return until_s - now_s

    def was_late_alone(self, job: PlannedJob, now_s: float) -> None:
        """Rest the lane for as long as it held others back."""
        for lane, _ in self._still_ours(job):
            lane.rest_for_its_job(now_s)

    def too_much(self, job: PlannedJob) -> None:
        """Process fewer events at once; none of them is at fault."""
        for lane, portion in self._still_ours(job):
            most = max((end - begin for begin, end in portion.ranges.values()), default=1)
            lane.is_apart, lane.events_max = True, max(1, most // 2)
            # Even one event of each Kafka partition is too much: find out which one.
            lane.cut_to |= dict.fromkeys(portion.ranges, 1) if most == 1 else {}

    def held_up(self, job: PlannedJob, now_s: float) -> float:
        """Plan a retry after Kafka or Spark has not answered; return the wait in seconds."""
        wait_s = 0.0
        for lane, _ in self._still_ours(job):
            wait_s = min(2.0 ** min(lane.deaths, 6) - 1, _WAIT_S_MAX)
            lane.rest_until(now_s + wait_s)
            lane.deaths += 1
            lane.earlier.look_again()
            # A single pipeline of the job may be the cause.
            lane.is_apart = True
        return wait_s
