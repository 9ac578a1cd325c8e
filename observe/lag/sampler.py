"""Samples every destination once a second: books, lag, age, and a verdict.

The sampler is independent of Spark: it sees that a lane hangs because the log grows without
receipts from the lane.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from observe.audit.status import AuditStatus, is_news
from observe.lag.live_books import LiveBooks, Values, open_books
from observe.lag.pace import Pace
from observe.lag.pipeline_states import built_anew
from observe.lag.pipeline_verdict import pipeline_verdict
from observe.lag.progress import WINDOW_MS, Rolling
from observe.lag.stage_lags import stage_lags
from observe.lag.trouble import LATEST_MS
from observe.lag.verdict import stream_verdict
from observe.series.steps import STEP_MS, EndedStep
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineStates, state_of
from shared.event.record import Origin
from shared.event.spread import Spread
from shared.event.times import MINUTE_MS
from shared.event.topics import ACKED, is_pipelines, stream_and_name, stream_of
from shared.flow.flow_record import FlowRecord
from shared.proof.acked import AckedRow
from shared.proof.overview import (
    AuditHealth,
    DestinationView,
    OverdueMinutes,
    Overview,
    PipelineView,
    Quantiles,
    RemovedView,
    StreamVerdict,
    StreamView,
    UnknownView,
    worst,
)
from shared.proof.restored import RestoredView
from shared.runtime.clock import now_ms
from shared.runtime.health import Health, Pulse
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# Half of the time within which a hung lane must be noticed; a sample costs a fraction of a percent
# of a core.
SAMPLE_S = 1.0
# Positions and ages cost a request each, so they are fetched less often, which people hardly
# notice. Only positions that would confirm an outcome are fetched with each sample.
_SLOW_SAMPLE_S = 3.0
# Fetch the positions of all other lanes, too, to learn where they began if no receipt says it.
_ASK_ALL_S = 30.0
# The ledger's rows of the last minute give the rate right after a start.
_LEDGER_MS = MINUTE_MS
_PACE_MS = MINUTE_MS
_PAUSE_S = 2.0
# The sampler shows at least this often that it is alive: its requests to Kafka end within 40 s.
_TURN_WITHIN_S = 120.0
_NOTHING_READ = Overview(0, (), AuditHealth(), problem="nothing has been read yet")


@dataclass(slots=True)
class _StreamData:
    """A stream's data from the gateway's ledger."""

    ingest: Rolling = field(default_factory=Rolling)
    process: Rolling = field(default_factory=Rolling)
    # Acknowledged events by second, and the mean size of an event.
    counts: dict[int, int] = field(default_factory=dict)
    event_bytes: float = 0.0
    last_accepted_at_ms: int = 0
    spread: Spread = field(default_factory=Spread)


@dataclass(slots=True)
class Sampler:
    """Keeps the overview up to date until it is cancelled."""

    _bootstrap_servers: str
    _configuration: Callable[[], Configuration]
    # The workers' flow record of each destination.
    _flows: Callable[[], Mapping[str, FlowRecord]]
    # The judged states of pipelines, by name.
    _standings: Callable[[], PipelineStates]
    _audit: AuditStatus
    _slow_after_s: float
    # Called with each new overview.
    _show: Callable[[Overview], None]
    # The current overview; never changed in place, so that any thread may read it.
    overview: Overview = _NOTHING_READ
    _problem: str = _NOTHING_READ.problem
    _books: LiveBooks | None = None
    _streams: dict[str, _StreamData] = field(default_factory=dict)
    # By destination: when the broker took the first open event of each Kafka partition.
    _oldest: dict[str, dict[Origin, int]] = field(default_factory=dict)
    _busy_since_ms: dict[str, int] = field(default_factory=dict)
    _paces: dict[str, Pace] = field(default_factory=dict)
    _pulse: Pulse = field(default_factory=Pulse)

    def tell(self, health: Health) -> None:
        """Make the process's health depend on this loop, whether Kafka answers or not."""
        health.must_turn("the sampler of lag", self._pulse, within_s=_TURN_WITHIN_S)

    async def run(self) -> None:
        """Follow Kafka; start again after any failure."""
        while True:
            try:
                latest = {ACKED: now_ms() - _LEDGER_MS}
                async with open_books(
                    self._bootstrap_servers, self._configuration, latest=latest
                ) as books:
                    for remembered in (self._streams, self._oldest, self._busy_since_ms):
                        remembered.clear()
                    self._paces.clear()
                    self._books = books
                    await self._follow(books)
            except (KafkaUnavailableError, OSError) as error:
                log.warning("sampler.failed", error=repr(error))
                self._problem = f"Kafka cannot be read: {type(error).__name__}"
                await self._publish()
                await asyncio.sleep(_PAUSE_S)

    async def _follow(self, books: LiveBooks) -> None:
        loop = asyncio.get_running_loop()
        sample_s = slow_s = all_s = 0.0
        await books.look_at_log(self._configuration().past_streams)
        while True:
            while loop.time() < sample_s:
                self._enter(await books.read())
            sample_s = loop.time() + SAMPLE_S
            is_slow = loop.time() >= slow_s
            if is_all := is_slow and loop.time() >= all_s:
                all_s = loop.time() + _ASK_ALL_S
            lanes = self._to_ask(books, with_gone=is_slow, with_confirmed=is_all)
            async for values in books.catch_up(lanes):
                self._enter(values)
                if self._problem and loop.time() >= sample_s:
                    # A long history takes time to read after a start: report that meanwhile.
                    sample_s = loop.time() + SAMPLE_S
                    await self._publish()
            self._problem = ""
            await books.look_at_log(self._configuration().past_streams)
            if is_slow:
                slow_s = loop.time() + _SLOW_SAMPLE_S
                await self._look_for_oldest(books)
            await self._publish()

    def _to_ask(self, books: LiveBooks, *, with_gone: bool, with_confirmed: bool) -> list[str]:
        """Return the lanes whose new position may change their books.

        `with_gone` adds removed lanes, whose unconfirmed outcomes would otherwise be kept forever.
        `with_confirmed` adds lanes without unconfirmed outcomes.
        """
        configuration = self._configuration()
        lanes = {pipeline.lane_id for pipeline in configuration.pipelines.values()}
        wanted = lanes.union(configuration.destinations, books.destination_ids if with_gone else ())
        if with_confirmed:
            return list(wanted)
        return [lane for lane in wanted if not books.of(lane).is_confirmed]

    def _enter(self, values: Values) -> None:
        at_ms = now_ms()
        for value in values.get(ACKED, ()):
            try:
                self._enter_row(AckedRow.from_bytes(value, with_ids=False), at_ms)
            except (ValueError, TypeError, KeyError) as error:
                log.warning("record.unreadable", topic=ACKED, error=repr(error))

    def _enter_row(self, row: AckedRow, at_ms: int) -> None:
        stream = self._streams.setdefault(stream_of(row.topic), _StreamData())
        stream.ingest.merge(row.ingest, now_ms=at_ms)
        stream.process.merge(row.process, now_ms=at_ms)
        stream.spread.take(row.partition, row.count, row.keys, now_ms=at_ms)
        for request in row.slices:
            second = request.accepted_at_ms // 1000
            stream.counts[second] = stream.counts.get(second, 0) + request.count
            stream.last_accepted_at_ms = max(stream.last_accepted_at_ms, request.accepted_at_ms)
        size = row.value_bytes / max(row.count, 1)
        stream.event_bytes = 0.9 * stream.event_bytes + 0.1 * size if stream.event_bytes else size

    async def _look_for_oldest(self, books: LiveBooks) -> None:
        """Look up the age of each first open event."""
        oldest = dict[str, dict[Origin, int]]()
        # Many destinations of a stream may wait at the same event.
        known = {place: at for places in self._oldest.values() for place, at in places.items()}
        configuration = self._configuration()
        lanes = (pipeline.lane_id for pipeline in configuration.pipelines.values())
        for destination_id in (*configuration.destinations, *lanes):
            log_spans = books.log_of(destination_id)
            for place in books.of(destination_id).oldest_open(log_spans):
                stored_at_ms = known.get(place) or await books.stored_at_ms(place)
                if stored_at_ms is not None:
                    known[place] = stored_at_ms
                    oldest.setdefault(destination_id, {})[place] = stored_at_ms
        self._oldest = oldest

    async def _publish(self) -> None:
        """Build and show a new overview, and let other tasks run between destinations."""
        self._pulse.beat()
        at_ms = now_ms()
        configuration = self._configuration()
        views, removed = list[StreamView](), list[RemovedView]()
        unknown, pipelines = tuple[UnknownView, ...](), list[PipelineView]()
        if (books := self._books) is not None:
            there = configuration.destinations
            self._paces = {name: self._paces.get(name) or Pace() for name in there}
            for gone in configuration.removed_now:
                removed.append(books.left_of(gone))
                await asyncio.sleep(0)
            unknown = tuple(books.unknown_of(configuration))
            for view in books.of_pipelines(configuration):
                pipeline = configuration.pipelines[view.name]
                pipelines.append(self._pipeline_view(view, pipeline, books, at_ms))
                await asyncio.sleep(0)
            of_stream: dict[str, list[Destination]] = {name: [] for name in configuration.streams}
            for each in there.values():
                of_stream.get(each.stream, []).append(each)
            for name, ours in sorted(of_stream.items()):
                known = configuration.streams[name]
                views.append(await self._stream_view(known, ours, books, at_ms))
        audit, seen = self._audit.health_at(at_ms), (tuple(removed), unknown, tuple(pipelines))
        self.overview = Overview(at_ms, tuple(views), audit, self._problem, *seen)
        self._show(self.overview)

    def ended(self, step: int) -> EndedStep | None:
        """Return a past step, without streams if over a minute old; None until all is read."""
        if (books := self._books) is None or self._problem:
            return None
        seconds = range(step * STEP_MS // 1000, (step + 1) * STEP_MS // 1000)
        views = self.overview.streams if step * STEP_MS > self.overview.at_ms - _PACE_MS else ()
        counts = {
            view.name: self._streams.setdefault(view.name, _StreamData()).counts for view in views
        }
        accepted = {name: sum(of.get(at, 0) for at in seconds) for name, of in counts.items()}
        takers = (view.destination_id for view in self.overview.takers)
        return EndedStep(accepted, {each: books.of(each).ended(step) for each in takers})

    async def _stream_view(
        self, known: Stream, ours: list[Destination], books: LiveBooks, at_ms: int
    ) -> StreamView:
        name = known.name
        stream = self._streams.setdefault(name, _StreamData())
        destinations = list[DestinationView]()
        for destination in sorted(ours, key=lambda each: each.name):
            destinations.append(self._view(destination, books, at_ms))
            await asyncio.sleep(0)
        verdict = worst(view.verdict for view in destinations)
        reasons = [f"{v.name}: {v.reason}" for v in destinations if v.verdict is verdict]
        since_s = (at_ms - _PACE_MS) // 1000
        stream.counts = {s: count for s, count in stream.counts.items() if s > since_s}
        return StreamView(
            name=name,
            verdict=verdict,
            reason="; ".join(reasons) if verdict is not StreamVerdict.OK else "",
            events_per_s=sum(stream.counts.values()) / (_PACE_MS / 1000),
            ingest=Quantiles.of(stream.ingest.read(now_ms=at_ms)),
            destinations=tuple(destinations),
            # An event counts once, whatever the number of destinations. Events that Kafka has
            # deleted since they were read still count.
            acked=max([books.acked_count(name), *(view.balance.acked for view in destinations)]),
            spread=stream.spread.view(known.partition_count, now_ms=at_ms),
            last_accepted_at_ms=stream.last_accepted_at_ms,
            restored=RestoredView.of(books.restores.into(name)),
        )

    def _view(self, destination: Destination, books: LiveBooks, at_ms: int) -> DestinationView:
        record = self._flows().get(destination.id)
        progress = books.of(destination.id)
        view = self._shown(destination.id, books, at_ms, record, is_paused=destination.is_paused)
        judged = stream_verdict(
            view,
            destination,
            record,
            progress.recent.read(now_ms=at_ms, span_ms=LATEST_MS),
            problem=self._problem,
            blindness=self._audit.blindness(at_ms),
            drain_s=self._paces[destination.id].drain_s(view.balance, at_ms),
            now_ms=at_ms,
            slow_after_s=self._slow_after_s,
        )
        return replace(view, verdict=judged.verdict, reason=judged.reason, cause=judged.cause)

    def _pipeline_view(
        self, view: PipelineView, pipeline: Pipeline, books: LiveBooks, at_ms: int
    ) -> PipelineView:
        lane = self._shown(pipeline.lane_id, books, at_ms, is_paused=False)
        state = state_of(pipeline, self._standings())
        rates = books.of(pipeline.lane_id).recent.rates(now_ms=at_ms)
        judged = pipeline_verdict(
            lane,
            state,
            rates,
            problem=self._problem,
            blindness=self._audit.blindness(at_ms),
            slow_after_s=self._slow_after_s,
        )
        lane = replace(lane, verdict=judged.verdict, reason=judged.reason, cause=judged.cause)
        says = (state.standing, state.why, state.pointer)
        kept, lost = (state.kept, state.kept_bytes), (state.lost, state.lost_last)
        ended = (state.executors_ended, state.executor_ended_at_ms)
        built = built_anew(view.name, self._configuration(), self._standings())
        return PipelineView(
            *(view.stream, view.name, view.balance, lane, *says, rates, *kept, *lost, *ended, built)
        )

    def _shown(
        self,
        destination_id: str,
        books: LiveBooks,
        at_ms: int,
        record: FlowRecord | None = None,
        *,
        is_paused: bool,
    ) -> DestinationView:
        """Return the view of a destination or a pipeline, without its verdict."""
        stream_name, name = stream_and_name(destination_id)
        stream = self._streams.setdefault(stream_name, _StreamData())
        progress, balance = books.of(destination_id), books.balance(destination_id)
        stored = self._oldest.get(destination_id, {}).values()
        backlog = balance.queued + balance.waiting
        oldest_age_s = max((at_ms - at) / 1000 for at in stored) if stored and backlog else None
        delivered = progress.delivery.out_from_accepted.read(now_ms=at_ms)
        delivered.merge(progress.retrier.out_from_accepted.read(now_ms=at_ms))
        whole = progress.delivery.out_from_event.read(now_ms=at_ms)
        whole.merge(progress.retrier.out_from_event.read(now_ms=at_ms))
        minutes = tuple(
            minute
            for minute in self._audit.minutes.get(destination_id, ())
            if is_news(minute, at_ms)
        )
        # A paused destination has no lane that could report.
        busy = 0 if is_paused else balance.queued
        return DestinationView(
            stream=stream_name,
            name=name,
            destination_id=destination_id,
            verdict=StreamVerdict.CANNOT_TELL,
            reason="",
            balance=balance,
            stages=stage_lags(
                progress, stream.ingest, stream.process, at_ms, is_pipelines=is_pipelines(name)
            ),
            end_to_end=Quantiles.of(whole),
            since_accepted=Quantiles.of(delivered),
            backlog_events=backlog,
            backlog_bytes=round(backlog * stream.event_bytes),
            oldest_age_s=oldest_age_s,
            silent_s=self._silent_s(destination_id, busy, progress.heard_at_ms, at_ms),
            waiting_by_cause=progress.waiting_by_cause(),
            minutes=minutes,
            overdue=self._audit.overdue.get(destination_id, OverdueMinutes()),
            lately=progress.recent.read(now_ms=at_ms),
            delivered_per_s=progress.delivered_per_s(at_ms),
            answers=progress.answers.read(now_ms=at_ms, span_ms=WINDOW_MS),
            dead_groups=progress.dead_groups(),
            last_refusal=record.flow.last_refusal if record else None,
            last_ok_at_ms=record.flow.last_ok_at_ms if record else 0,
        )

    def _silent_s(self, destination_id: str, queued: int, heard_at_ms: int, at_ms: int) -> float:
        if not queued:
            self._busy_since_ms.pop(destination_id, None)
            return 0.0
        since_ms = self._busy_since_ms.setdefault(destination_id, at_ms)
        return max(0.0, (at_ms - max(since_ms, heard_at_ms)) / 1000)
