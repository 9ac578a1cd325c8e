"""The driver's use of reports: settings of lanes, losses, and deaths.

Spark is not started here; the log and the outlet are the fakes of tests/contract.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs
from pydantic import ValidationError
from structlog.testing import capture_logs

from delivery.lanes import pace
from delivery.lanes.loop import LaneLoop
from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.pace import kind_of
from delivery.lanes.units import PATIENCE_S, Job, JobKind, Orders, Span, Strand, StrandEnd
from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Origin, Position, RecordIn
from shared.flow.breaker import Breaker, BreakerState
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.lane_positions import LanePositions
from shared.runtime.kafka.state_topic import StateFeed
from shared.slots import SLOT_COUNT
from tests.support.delivery.memory_log import MemoryLog
from tests.support.delivery.memory_outlet import MemoryOutlet
from tests.support.suite.samples import NOW_MS

A, B = (KafkaPartition("hifi.stream.s", number) for number in range(2))
TO = Destination("s", "a", "http://localhost/")
HERE, BESIDE = Strand(TO.id, A), Strand(TO.id, B)


@pytest.fixture(autouse=True)
def _a_clock_that_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "now_ms", lambda: NOW_MS)


class Untold(LanePositions):
    """Positions in a Kafka to which no lane has ever reported."""

    async def last(self, lanes: Collection[str]) -> Mapping[str, Position]:
        return {lane: {} for lane in lanes}


class Driver:
    """A loop whose process holds every slot, over a log of two Kafka partitions."""

    def __init__(
        self, *, events: int = 9, marks: dict[Strand, Mark] | None = None, **settings: Any
    ) -> None:
        self.log, self.outlet, self.metrics = MemoryLog(), MemoryOutlet(), DeliveryMetrics()
        self.log.make("hifi.stream.s", 2)
        self.write(events)
        self.loop = LaneLoop(
            cast("Any", None),
            DeliverySettings(bootstrap_servers="kafka:1", **settings),
            self.metrics,
            ConfigFeed("kafka:1"),
            StateFeed("kafka:1"),
            Untold("kafka:1"),
            self.log,
            MarksLog(self.log, marks or {}),
            self.outlet,
        )
        # The test moves this clock; the loop's own clock hardly advances meanwhile.
        self.now_s = time.monotonic()
        self.loop.member.owned = frozenset(range(SLOT_COUNT))
        self.configure(TO)

    def write(self, count: int) -> None:
        self.log.write(RecordIn(Origin(*A, n), 1, None, b"1", ()) for n in range(count))

    def configure(self, to: Destination) -> None:
        streams = {"s": Stream("s", 2)}
        self.loop.roster.take(Configuration(streams=streams, destinations={to.id: to}))

    def look(self) -> None:
        asyncio.run(self.loop._look())

    def spans(self) -> dict[Strand, Span]:
        """Return the spans that are planned a minute later."""
        self.now_s += 60.0
        jobs = self.loop.book.plan(self.loop._lane_of, self.loop.turns, now_s=self.now_s)
        for job in jobs:
            self.loop.turns.end(job)
        return {
            Strand(name, unit.where): span
            for job in jobs
            for unit in job.units
            for name, span in unit.spans.items()
        }

    def hears(self, spans: dict[Strand, Span], *ends: StrandEnd) -> Sequence[str]:
        """Take a job's reports, and return the logged events."""
        with capture_logs() as logs:
            self.loop._take_reports(ends, spans, "no word", took_s=1.0)
        return [each["event"] for each in logs]

    def position(self) -> dict[KafkaPartition, int]:
        return dict(self.loop.book.position(TO.id, [A, B]))

    def shows(self, metric: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"hifi_delivery_{metric}", {"destination": TO.id}
        )


def known(state: FlowState = FlowState.CLOSED, **flow: object) -> FlowRecord:
    return FlowRecord(Flow(**flow), state=state, updated_at_ms=NOW_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (None, JobKind.SHARED),
        (known(), JobKind.SHARED),
        (known(slow_left=1), JobKind.APART),
        *((known(state), JobKind.APART) for state in FlowState if state is not FlowState.CLOSED),
    ],
)
def test_who_is_not_well_shares_no_job_with_those_who_are(
    record: FlowRecord | None, kind: JobKind
) -> None:
    assert kind_of(TO, record) is kind
    follows = JobKind.FOLLOWING if kind is JobKind.SHARED else kind
    assert kind_of(replace(TO, latency="realtime"), record) is follows


IN_TROUBLE = known(
    FlowState.OPEN,
    breaker=Breaker(state=BreakerState.OPEN, until_ms=NOW_MS + 1),
    failing_since_ms=NOW_MS - 60_000,
)


RESUMED_BEFORE = structs.replace(
    IN_TROUBLE, flow=structs.replace(IN_TROUBLE.flow, resumed_at_ms=NOW_MS)
)


@pytest.mark.parametrize(
    ("to", "record", "rests"),
    [
        (TO, None, False),
        (TO, known(), False),
        (TO, IN_TROUBLE, True),
        (
            TO,
            structs.replace(
                IN_TROUBLE, flow=structs.replace(IN_TROUBLE.flow, failing_since_ms=NOW_MS)
            ),
            False,
        ),
        (TO, known(FlowState.DISABLED), True),
        # A person has asked to try again, and no news of the destination has arrived since.
        (replace(TO, resumed_at_ms=NOW_MS), IN_TROUBLE, False),
        (replace(TO, resumed_at_ms=NOW_MS), known(FlowState.DISABLED), False),
        # The gateway's clock may be an hour slow.
        (replace(TO, resumed_at_ms=NOW_MS - 3_600_000), IN_TROUBLE, False),
        (replace(TO, resumed_at_ms=NOW_MS), RESUMED_BEFORE, True),
        # A person has disabled it: its events go to dead letters.
        (replace(TO, is_disabled=True), None, True),
        (replace(TO, is_disabled=True), known(), True),
        (replace(TO, is_disabled=True, resumed_at_ms=NOW_MS), IN_TROUBLE, True),
    ],
)
def test_who_only_parks_rests_between_its_turns(
    to: Destination, record: FlowRecord | None, *, rests: bool
) -> None:
    driver = Driver()
    driver.configure(to)
    driver.loop.states.value = {} if record is None else {TO.id: record}
    driver.look()
    lane = driver.loop._lane_of(TO.id)
    assert lane is not None
    box_s = driver.loop.settings.time_box_s
    if rests:
        assert lane.kind is JobKind.APART
        assert 0.5 * box_s < lane.rest_s <= box_s
    else:
        assert lane.rest_s == 0
    # The worker then does not wait for another worker's probe.
    orders = asyncio.run(_orders(driver))
    assert orders.resting == (frozenset({TO.id}) if rests else frozenset())


async def _orders(driver: Driver) -> Orders:
    return driver.loop._orders([HERE], Job(JobKind.SHARED, []))


def test_a_lane_is_its_tenants_and_a_job_in_a_hurry_waits_a_moment_for_answers() -> None:
    driver = Driver()
    driver.look()
    lane = driver.loop._lane_of(TO.id)
    assert lane is not None
    assert lane.tenant == "", "its stream is no longer known, or not yet"
    driver.loop.config.value = Configuration(streams={"s": Stream("s", 2, tenant="acme")})
    lane = driver.loop._lane_of(TO.id)
    assert lane is not None
    assert lane.tenant == "acme"

    async def patience_s(*, is_hurried: bool) -> float | None:
        job = Job(JobKind.SHARED, [], is_hurried=is_hurried)
        return driver.loop._orders([HERE], job).patience_s

    assert asyncio.run(patience_s(is_hurried=False)) is None
    assert asyncio.run(patience_s(is_hurried=True)) == PATIENCE_S


@pytest.mark.parametrize(("parallel_max", "is_unasked"), [(1, False), (2, True), (4, True)])
def test_only_who_takes_a_request_of_each_kafka_partition_is_not_asked(
    parallel_max: int, *, is_unasked: bool
) -> None:
    """Jobs of one worker may run in several processes, which do not know of each other."""
    driver = Driver(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    driver.configure(replace(TO, parallel_max=parallel_max))
    driver.look()
    orders = asyncio.run(_orders(driver))
    assert orders.unasked == ({TO.id} if is_unasked else set())


@pytest.mark.parametrize(
    ("cores", "workers", "places"), [(1, 1, 32), (2, 2, 32), (6, 6, 48), (64, 8, 64)]
)
def test_there_are_places_for_whoever_waits_on_any_machine(
    monkeypatch: pytest.MonkeyPatch, cores: int, workers: int, places: int
) -> None:
    monkeypatch.setattr("delivery.settings.core_count", lambda: cores)
    settings = DeliverySettings()
    assert (settings.worker_count, settings.task_places) == (workers, places)
    least = 2 * workers + 2
    assert DeliverySettings(task_places=least).task_places == least
    with pytest.raises(ValidationError, match=f"at least {least} here.* unset it for {places}"):
        DeliverySettings(task_places=least - 1)


def test_nothing_is_planned_for_what_is_paused_given_up_or_not_ours() -> None:
    driver = Driver()
    driver.look()
    assert driver.loop._lane_of(TO.id) is not None
    slot = driver.loop.member.slot_of(TO.id)
    driver.loop._leaving = frozenset({slot})
    assert driver.loop._lane_of(TO.id) is None
    driver.loop._leaving = frozenset({slot + 1})
    assert driver.loop._lane_of(TO.id) is not None
    driver.configure(replace(TO, is_paused=True))
    assert driver.loop._lane_of(TO.id) is None
    assert driver.loop._lane_of("s/unknown") is None


def test_what_a_job_says_is_heard_of_each_strand_by_itself() -> None:
    driver = Driver(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    driver.log.write([RecordIn(Origin(*B, 0), 1, None, b"1", ())])
    driver.look()
    spans = driver.spans()
    assert spans == {HERE: Span(0, 9), BESIDE: Span(0, 1)}
    told = driver.hears(spans, StrandEnd(BESIDE, 1, 1), StrandEnd(HERE, 4, 4, "OSError: no"))
    assert told == ["lane.started", "lane.died"]
    assert driver.position() == {A: 4, B: 1}
    assert driver.loop.book.mark(HERE) == Mark(4, 9), "the outcome of the other events is unknown"
    assert driver.shows("lane_up") == 0
    (again,) = driver.spans().values()
    assert again == Span(4, 9, 9)
    driver.hears({HERE: again}, StrandEnd(HERE, 9, 5))
    assert driver.position() == {A: 9, B: 1}
    assert driver.shows("lane_up") == 1


def test_a_job_that_ends_without_a_word_has_done_nothing_that_counts() -> None:
    driver = Driver(marks={HERE: Mark(2, 2), BESIDE: Mark(0, 0)})
    driver.look()
    spans = driver.spans()
    assert driver.hears(spans) == ["lane.started", "lane.died"]
    assert driver.position() == {A: 2, B: 0}
    assert driver.spans() == {HERE: Span(2, 9, 9)}


def test_a_late_word_of_what_was_over_clears_no_death() -> None:
    driver = Driver(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    driver.look()
    first = driver.spans()
    # The strand is free by its mark, while its job waits for others.
    driver.loop._mark_came(HERE, Mark(9, 9))
    driver.log.write([RecordIn(Origin(*A, 9), 1, None, b"1", ())])
    driver.look()
    second = driver.spans()
    driver.hears(second, StrandEnd(HERE, 9, 0, "OSError: no"))
    driver.hears(first, StrandEnd(HERE, 9, 9))
    assert driver.shows("lane_up") == 0
    assert driver.loop.book.mark(HERE) == Mark(9, 10)


LOST = "DataLostError: nothing there any more"


def test_lost_events_are_skipped_when_a_person_says_so_and_not_before() -> None:
    driver = Driver(marks={HERE: Mark(2, 2), BESIDE: Mark(0, 0)})
    driver.look()
    driver.log.forget(A, 5)
    # The owner has resumed the destination once before.
    driver.configure(replace(TO, resumed_at_ms=NOW_MS - 1))
    for told in (["lane.started", "lane.data_lost"], []):
        spans = driver.spans()
        assert set(spans) == {HERE}
        assert driver.hears(spans, StrandEnd(HERE, 2, 0, LOST, is_data_lost=True)) == told
        driver.look()
        assert driver.position() == {A: 2, B: 0}
    driver.configure(replace(TO, resumed_at_ms=NOW_MS + 1))
    with capture_logs() as logs:
        driver.look()
    assert [(each["event"], each["to"]) for each in logs] == [("lane.skips", 5)]
    assert driver.position() == {A: 5, B: 0}
    assert driver.shows("lane_up") == 1
    driver.look()
    assert driver.spans() == {HERE: Span(5, 9, 9)}


def test_a_person_is_heard_though_the_lane_has_met_the_loss_once_more_meanwhile() -> None:
    """The lane retries twice a minute, and a person's answer takes a moment to arrive."""
    driver = Driver(marks={HERE: Mark(2, 2), BESIDE: Mark(0, 0)})
    driver.look()
    driver.log.forget(A, 5)
    driver.hears(driver.spans(), StrandEnd(HERE, 2, 0, LOST, is_data_lost=True))
    driver.hears(driver.spans(), StrandEnd(HERE, 2, 0, LOST, is_data_lost=True))
    # The gateway's clock may be an hour slow.
    driver.configure(replace(TO, resumed_at_ms=NOW_MS - 3_600_000))
    driver.look()
    assert driver.position() == {A: 5, B: 0}


def test_what_was_not_lost_after_all_is_not_skipped_later() -> None:
    """For example, the broker was only away for a moment."""
    driver = Driver(marks={HERE: Mark(2, 2), BESIDE: Mark(0, 0)})
    driver.look()
    driver.hears(driver.spans(), StrandEnd(HERE, 2, 0, LOST, is_data_lost=True))
    (again,) = driver.spans().values()
    driver.loop._mark_came(HERE, Mark(4, 9))
    driver.hears({HERE: again}, StrandEnd(HERE, 4, 2, "OSError: no"))
    driver.configure(replace(TO, resumed_at_ms=NOW_MS + 1))
    with capture_logs() as logs:
        driver.look()
    assert logs == []
    assert driver.position() == {A: 4, B: 0}


@pytest.mark.parametrize("mark", [Mark(500, 500), Mark(500, 520), Mark(500, OPEN)])
def test_a_lane_whose_topic_was_made_anew_says_so_and_goes_on_when_told(mark: Mark) -> None:
    driver = Driver(marks={HERE: mark, BESIDE: Mark(0, 0)})
    driver.look()
    (span,) = driver.spans().values()
    assert span == Span(500, 501), "Kafka is asked for the missing event"
    driver.hears({HERE: span}, StrandEnd(HERE, 500, 0, LOST, is_data_lost=True))
    assert driver.shows("lane_up") == 0
    assert driver.position() == {A: 500, B: 0}
    driver.configure(replace(TO, resumed_at_ms=NOW_MS + 1))
    driver.look()
    assert driver.position() == {A: 0, B: 0}
    assert driver.spans() == {HERE: Span(0, 9, 9)}, "all events, as possible repeats"
    assert driver.shows("lane_up") == 1


def test_a_strand_that_hangs_is_called_stalled_while_the_rest_of_its_lane_goes_on() -> None:
    driver = Driver(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    driver.look()
    driver.loop._look_at_fates(driver.now_s)
    assert set(driver.spans()) == {HERE}
    for end in (1, 2):
        driver.loop.book.see_ends({B: end})
        assert set(driver.spans()) == {BESIDE}
        driver.loop._mark_came(BESIDE, Mark(end, end))
    with capture_logs() as logs:
        driver.loop._look_at_fates(driver.now_s)
    assert [(each["event"], each["partition"]) for each in logs] == [("lane.stalled", 0)]


def test_a_lane_that_waits_for_its_batch_to_fill_does_not_stand_still() -> None:
    driver = Driver(events=1)
    driver.configure(replace(TO, linger_s=60.0))
    driver.look()
    driver.loop._look_at_fates(driver.now_s)
    assert driver.spans() == {}
    with capture_logs() as logs:
        driver.loop._look_at_fates(driver.now_s + 119.0)
    assert logs == []
    with capture_logs() as logs:
        driver.loop._look_at_fates(driver.now_s + 121.0)
    assert [each["event"] for each in logs] == ["lane.stalled"]
