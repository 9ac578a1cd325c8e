"""Makes the events, histories and records that the unit tests are about."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from observe.audit.evidence import Layers
from shared.event.envelope import Envelope, History
from shared.event.record import Headers, Origin, RecordIn
from shared.proof.log_buckets import LogBuckets
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome, receipts_of
from shared.retry.attempt import Attempt, classify
from shared.retry.decision import Decision, Situation, decide
from shared.retry.schedule import RetrySchedule

# A Tuesday in November 2023; any instant would do, but a real one makes failures readable.
NOW_MS = 1_700_000_000_000
DAY_S = 86_400.0


def an_envelope(
    offset: int = 0,
    *,
    partition: int = 0,
    value: bytes = b'{"a":1}',
    event_time_ms: int = NOW_MS,
    accepted_at_ms: int = NOW_MS,
    traceparent: str | None = None,
) -> Envelope:
    return Envelope(
        origin=Origin("hifi.stream.orders", partition, offset),
        value=value,
        key=b"k",
        stream="orders",
        event_id=f"evt-{offset}",
        event_time_ms=event_time_ms,
        accepted_at_ms=accepted_at_ms,
        traceparent=traceparent,
    )


def layers_of(intervals: Iterable[tuple[int, int]]) -> Layers:
    layers = Layers()
    for first, end in intervals:
        layers.add(first, end)
    return layers


def decided(
    history: History,
    attempt: Attempt,
    schedule: RetrySchedule,
    situation: Situation,
    *,
    retry_on: AbstractSet[int] = frozenset(),
) -> Decision:
    """Return the decision after an attempt, with the verdict that it deserves."""
    return decide(history, attempt, classify(attempt, retry_on=retry_on), schedule, situation)


def a_history(
    *,
    attempt_count: int = 0,
    park_count: int = 0,
    now_ms: int = NOW_MS,
    deadline_s: float = 3 * DAY_S,
    is_ambiguous: bool = False,
) -> History:
    return History(
        attempt_count=attempt_count,
        park_count=park_count,
        first_attempt_at_ms=now_ms,
        deadline_at_ms=now_ms + round(deadline_s * 1000),
        not_before_ms=now_ms,
        is_ambiguous=is_ambiguous,
    )


def a_record(
    headers: Headers = (),
    *,
    topic: str = "hifi.stream.orders",
    key: bytes | None = b"k",
    value: bytes = b"{}",
) -> RecordIn:
    return RecordIn(Origin(topic, 3, 42), NOW_MS, key, value, headers)


def log_buckets(values_ms: Iterable[int]) -> LogBuckets:
    buckets = LogBuckets()
    for value_ms in values_ms:
        buckets.add(value_ms)
    return buckets


def a_receipt(
    outcome: ReceiptOutcome, *spans: tuple[int, int], partition: int = 0, **more: Any
) -> Receipt:
    """Return a receipt of events by their offsets [first, end), with `more` as a test needs."""
    facts = {
        "destination_id": "orders/shop",
        "reason": "",
        "batch_id": "msg_1",
        "event_count": sum(end - first for first, end in spans),
        "covered": tuple(CoveredOffsets("hifi.stream.orders", partition, *span) for span in spans),
        "minutes": {},
        "event_time_ms_min": 0,
        "accepted_at_ms_min": 0,
        "attempt": 1,
        "started_at_ms": 0,
        "ended_at_ms": 0,
    }
    return Receipt(outcome=outcome, **{**facts, **more})


# Our own writers may put these into a header: any text in UTF-8 that is not empty.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = texts.filter(bool)
times_ms = st.integers(-(10**17), 10**17)
counts = st.integers(0, 10**6)

origins = st.builds(Origin, names, st.integers(0, 1000), st.integers(0, 2**53))
histories = st.builds(
    History,
    attempt_count=counts,
    park_count=counts,
    first_attempt_at_ms=times_ms,
    deadline_at_ms=times_ms,
    not_before_ms=times_ms,
    cause=texts,
    last_status=st.none() | st.integers(-1, 1000),
    last_detail=texts,
    is_ambiguous=st.booleans(),
    last_attempt_at_ms=st.none() | times_ms,
    replay_id=st.just("") | texts,
)
# Histories of events that were redriven from dead letters.
redriven_histories = st.builds(
    replace, histories, redrive_count=counts.filter(bool), redrive_id=texts
)
envelopes = st.builds(
    Envelope,
    origin=origins,
    value=st.binary(max_size=40),
    key=st.none() | st.binary(max_size=10),
    stream=names,
    event_id=names,
    event_time_ms=times_ms,
    accepted_at_ms=times_ms,
    traceparent=st.none() | names,
    destination_id=names,
    history=histories | redriven_histories,
)


def receipt_of(line: bytes) -> Receipt:
    """Return the only receipt of a record."""
    (receipt,) = receipts_of(line)
    assert receipt is not None
    return receipt
