"""The console reads from a real Kafka: one event's way, dead letters, flow, keys."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from console.pages.events.event_steps import steps_of
from deploy.local.cluster import Cluster
from shared.event.envelope import Envelope, History, event_headers
from shared.event.places import Places
from shared.event.record import Origin, RecordOut
from shared.event.topics import STATE, fixed_specs, stream_spec, stream_topic
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord
from shared.proof.receipt import ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import DeadLetter, RetryLater
from shared.retry.routing import route, route_receipt
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup import event_search, key_search
from shared.runtime.kafka.lookup.event_search import EventSearch, SearchResult
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.kafka.kafka_log import write_rows

pytestmark = pytest.mark.integration

SCHEDULE = RetrySchedule()


def write(cluster: Cluster, stream: str, rows: Sequence[RecordOut]) -> None:
    async def run() -> None:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            tiers = [tier.name for tier in SCHEDULE.tiers]
            await admin.create_missing([*fixed_specs(tiers), stream_spec(stream)])
        # Events lie where their receipts say: all in one Kafka partition.
        await write_rows(
            cluster.bootstrap_servers,
            rows,
            partition_of=lambda _, row: 0 if row.topic == stream_topic(stream) else None,
        )

    asyncio.run(run())


def event(stream: str, number: int, *, event_id: str = "") -> Envelope:
    return Envelope(
        origin=Origin(stream_topic(stream), 0, number),
        value=b'{"number": %d}' % number,
        key=None,
        stream=stream,
        event_id=event_id or f"e{number}",
        event_time_ms=now_ms() - 20,
        accepted_at_ms=now_ms(),
    )


def stored(envelope: Envelope) -> RecordOut:
    headers = event_headers(
        event_id=envelope.event_id,
        event_time_ms=envelope.event_time_ms,
        accepted_at_ms=envelope.accepted_at_ms,
    )
    return RecordOut(envelope.origin.topic, None, envelope.value, headers)


_REASONS = {ReceiptOutcome.WAITING: "status_503", ReceiptOutcome.DEAD: "status_400"}


def outcome(envelopes: Sequence[Envelope], what: ReceiptOutcome, *, attempt: int) -> RecordOut:
    # Earlier than Kafka's timestamps of the records, however quickly these are written.
    at_ms = now_ms() - 1_000 + 100 * attempt
    return route_receipt(
        make_receipt(
            facts_of(envelopes),
            destination_id=f"{envelopes[0].stream}/to",
            outcome=what,
            reason=_REASONS.get(what, ""),
            batch_id=f"b{attempt}",
            attempt=attempt,
            started_at_ms=at_ms,
            ended_at_ms=at_ms + 10,
        )
    )


def waits(envelope: Envelope) -> RecordOut:
    history = History.fresh(now_ms=now_ms(), deadline_s=SCHEDULE.deadline_s)
    history = replace(history, attempt_count=1, cause="status_503", last_status=503)
    later = RetryLater(SCHEDULE.tiers[0], history)
    return route(later, envelope, f"{envelope.stream}/to", now_ms=now_ms())


def dies(envelope: Envelope, *, reason: str = "status_400") -> RecordOut:
    history = History.fresh(now_ms=now_ms(), deadline_s=SCHEDULE.deadline_s)
    history = replace(history, attempt_count=1, last_status=400, last_detail="no")
    return route(DeadLetter(reason, history), envelope, f"{envelope.stream}/to", now_ms=now_ms())


def find(
    cluster: Cluster,
    stream: str,
    event_id: str,
    *,
    before_ms: int | None = None,
    places: Places | None = None,
    to: Sequence[str] = (),
) -> SearchResult:
    index = None if places is None else lambda _topic, _id: places
    search = EventSearch(cluster.bootstrap_servers, index)
    return asyncio.run(search.find(stream, event_id, before_ms=before_ms, destination_ids=to))


def test_what_came_long_after_an_event_has_ended_is_not_waited_for(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, to = "ended", ["ended/to"]
    events = [event(stream, number) for number in range(4)]
    write(
        kafka,
        stream,
        [
            *map(stored, events),
            outcome(events[:1], ReceiptOutcome.WAITING, attempt=1),
            waits(events[0]),
            outcome(events[:2], ReceiptOutcome.DELIVERED, attempt=2),
            outcome(events[2:3], ReceiptOutcome.DEAD, attempt=1),
            dies(events[2]),
            *[outcome(events[3:], ReceiptOutcome.WAITING, attempt=1)] * 1_200,
        ],
    )
    # With time enough, all records are read.
    monkeypatch.setattr(event_search, "_SOON_S", 60.0)
    assert not find(kafka, stream, "e0", to=to).found[0].trail.ends_there
    monkeypatch.setattr(event_search, "_SOON_S", 0.0)
    (late,), (at_once,), (dead,), (waiting,) = (
        find(kafka, stream, f"e{number}", to=to).found for number in range(4)
    )
    assert [each.outcome.value for each in late.trail.receipts] == ["waiting", "delivered"]
    assert (len(late.trail.retries), len(dead.trail.dead)) == (1, 1)
    for found in (late, at_once, dead):
        assert (found.trail.is_whole, found.trail.ends_there) == (True, True)
    assert len(waiting.trail.receipts) == 1_200
    assert not waiting.trail.ends_there
    assert not find(kafka, stream, "e1").found[0].trail.ends_there


def test_the_newest_events_of_a_key_are_found_in_all_streams(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index's places are read over one connection; another key's events there are skipped."""
    for stream in ("keyed-a", "keyed-b"):
        rows = [stored(event(stream, number)) for number in range(3)]
        write(kafka, stream, [rows[0], *(replace(row, key=b"user-7") for row in rows[1:])])
    places = {
        stream_topic("keyed-a"): Places(((0, 0, 4),)),
        # The log is shorter than that: some of the places are gone.
        stream_topic("keyed-b"): Places(((0, 1, 2), (0, 50, 60), (9, 0, 1))),
    }
    search = EventSearch(
        kafka.bootstrap_servers, None, lambda topic, _: places.get(topic, Places())
    )
    found = asyncio.run(search.of_key(["keyed-a", "keyed-b", "keyed-c"], "user-7"))
    assert found.told.streams == ("keyed-a", "keyed-b")
    shown = [(each.stream, each.event_id) for each, _ in found.events]
    assert sorted(shown) == [("keyed-a", "e1"), ("keyed-a", "e2"), ("keyed-b", "e1")]
    times = [stored_at_ms for _, stored_at_ms in found.events]
    assert times == sorted(times, reverse=True)
    assert found.unread == ()
    assert not asyncio.run(search.of_key(["keyed-a"], "another")).events
    monkeypatch.setattr(key_search, "_READ_S_MAX", -1.0)
    hurried = asyncio.run(search.of_key(["keyed-a", "keyed-b"], "user-7"))
    assert (hurried.events, hurried.unread) == ((), ("keyed-a", "keyed-b"))


def test_an_events_way_is_found_among_thousands(kafka: Cluster) -> None:
    stream = "ways"
    events = [event(stream, number) for number in range(5_000)]
    late, dead = events[17], events[18]
    write(
        kafka,
        stream,
        [
            *map(stored, events),
            outcome([*events[:17], *events[19:]], ReceiptOutcome.DELIVERED, attempt=1),
            outcome([late], ReceiptOutcome.WAITING, attempt=1),
            waits(late),
            outcome([dead], ReceiptOutcome.DEAD, attempt=1),
            dies(dead),
            outcome([late], ReceiptOutcome.DELIVERED, attempt=2),
        ],
    )
    result = find(kafka, stream, "e17")
    (found,) = result.found
    assert found.trail.is_whole
    assert found.envelope.origin == late.origin
    assert found.envelope.value == late.value
    said = [step.what.split()[0] for step in steps_of(found, SCHEDULE)]
    assert sorted(said) == ["Delivered", "Not", "POST", "Stored", "Waits"]
    assert said[:2] == ["POST", "Stored"]
    # Sent first after fifteen others, then alone.
    assert found.around == {}

    (found,) = find(kafka, stream, "e18").found
    assert [step.what for step in steps_of(found, SCHEDULE)][-1].endswith("status_400")
    (found,) = find(kafka, stream, "e3").found
    # From the beginning of the log to the tenth event after it.
    assert found.around == {number: f"e{number}" for number in range(14)}
    (found,) = find(kafka, stream, "e4999").found
    # From the tenth event before it to the end of the log.
    assert list(found.around) == [*range(4_989, 5_000)]
    assert [receipt.outcome for receipt in found.trail.receipts] == [ReceiptOutcome.DELIVERED]
    nothing = find(kafka, stream, "e5000")
    assert (nothing.found, nothing.back_to_ms, nothing.records_read) == ((), None, 5_000)
    # With an index, only the places unknown to it are read.
    knows = Places(known=((0, 0, 2_000), (0, 2_010, 4_980)))
    nothing = find(kafka, stream, "e5000", places=knows)
    assert (nothing.found, nothing.back_to_ms) == ((), None)
    assert (nothing.records_read, nothing.passed_over) == (30, 4_970)
    assert find(kafka, stream, "e2005", places=knows).found
    assert find(kafka, stream, "e4999", places=knows).found
    assert find(kafka, stream, "e17", places=Places(((0, 17, 18),))).is_from_index


def test_all_events_of_one_id_are_found_the_newest_first(kafka: Cluster) -> None:
    stream = "twins"
    write(kafka, stream, [stored(event(stream, number, event_id="twin")) for number in range(3)])
    result = find(kafka, stream, "twin")
    assert [found.envelope.origin.offset for found in result.found] == [2, 1, 0]
    first_ms = result.found[-1].stored_at_ms
    assert find(kafka, stream, "twin", before_ms=first_ms).found == ()


def test_an_event_without_an_id_is_found_by_its_coordinates(kafka: Cluster) -> None:
    stream = "nameless"
    topic = stream_topic(stream)
    write(kafka, stream, [RecordOut(topic, None, b"written past the gateway")])
    (found,) = find(kafka, stream, f"{topic}:0:0").found
    assert found.trail.receipts == []


def test_a_kafka_that_is_away_is_one_sentence() -> None:
    with pytest.raises(KafkaUnavailableError, match=r"No Kafka broker answers at 127\.0\.0\.1:9"):
        asyncio.run(EventSearch("127.0.0.1:9").find("ways", "e1"))


def test_flow_is_shown_as_it_was_written(kafka: Cluster) -> None:
    record = FlowRecord(Flow(), since_ms=1_000, updated_at_ms=2_000)
    rows = [RecordOut(STATE, b"flows/to", record.to_json()), RecordOut(STATE, b"x", b"no JSON")]
    write(kafka, "flows", rows)

    async def run() -> None:
        feed = StateFeed(kafka.bootstrap_servers)
        await feed.start()
        try:
            flows = feed.flows
        finally:
            await feed.stop()
        assert flows["flows/to"] == record
        assert "x" not in flows

    asyncio.run(run())
