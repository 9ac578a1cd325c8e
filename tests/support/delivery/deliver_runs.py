"""Runs `deliver` without Spark for tests, and reads its results."""

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from delivery.opening import Rows
from delivery.sending import Plan
from shared.config.destination import Destination
from shared.event.envelope import (
    History,
    event_headers,
    open_retry_record,
    open_stream_record,
    retry_headers,
)
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import RECEIPTS, STATE, retry_topic, stream_topic
from shared.proof.intervals import Offsets
from shared.proof.receipt import Receipt, ReceiptOutcome, receipts_of
from shared.retry.resend import resent_rows
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from tests.support.delivery.deliver import deliver
from tests.support.delivery.fetched_rows import fetched
from tests.support.servers.scripted_destination import ScriptedDestination

# Local retries take milliseconds, tiers tenths of a second.
QUICK = RetrySchedule().scaled(0.005)
TOPIC = stream_topic("demo")
_FOLDERS = tempfile.TemporaryDirectory()


def events(count: int, *, first: int = 0) -> list[RecordIn]:
    return [
        RecordIn(
            origin=Origin(TOPIC, 0, offset),
            timestamp_ms=1_000,
            key=b"k",
            value=json.dumps({"id": f"e{offset}"}).encode(),
            headers=event_headers(
                event_id=f"e{offset}", event_time_ms=60_000 + offset, accepted_at_ms=61_000
            ),
        )
        for offset in range(first, first + count)
    ]


def run(
    records: Sequence[RecordIn],
    plan: Plan,
    *,
    is_again: bool = False,
) -> list[RecordOut]:
    return rows_of(deliver([rows_for(plan, records)], plan, is_again=is_again))


def rows_for(plan: Plan, records: Sequence[RecordIn]) -> Rows:
    """Return a stream's records as fetched, or waiting records (of many tiers) as opened."""
    return fetched(records) if plan.reads == "stream" and records else records


def rows_of(batches: Iterable[Sequence[RecordOut]]) -> list[RecordOut]:
    return [row for batch in batches for row in batch]


def replayed(at: int, replay_id: str) -> RecordIn:
    """Return an event that a replay has queued, or one without a replay."""
    (event,) = events(1, first=at)
    waits, _ = resent_rows(
        open_stream_record(event),
        "demo/sample",
        schedule=QUICK,
        resend_id=replay_id,
        now_ms=now_ms(),
    )
    return RecordIn(Origin(waits.topic, 0, at), 0, waits.key, waits.value, waits.headers)


def sample(destination: ScriptedDestination, **settings: object) -> Destination:
    return Destination(
        stream="demo",
        name="sample",
        url=destination.url,
        **settings,  # type: ignore[arg-type]
    )


def events_only(outcomes: Sequence[RecordOut]) -> list[RecordOut]:
    """Return the outcomes of events, without the states of destinations."""
    return [row for row in outcomes if row.topic != STATE]


def new_folder() -> Path:
    """Make a folder for the flow of a destination about which nothing is known."""
    return Path(tempfile.mkdtemp(dir=_FOLDERS.name))


def plan_for(to: Destination, **settings: object) -> Plan:
    settings.setdefault("flow_folder", new_folder())
    return Plan(
        allows_private=True,
        reads="stream",
        destinations={to.id: to},
        schedule=QUICK,
        **settings,  # type: ignore[arg-type]
    )


def receipts(outcomes: Sequence[RecordOut]) -> list[Receipt]:
    sheets = [one.value for one in outcomes if one.topic == RECEIPTS]
    return [receipt for sheet in sheets for receipt in receipts_of(sheet) if receipt]


def covered(outcomes: Sequence[RecordOut], outcome: ReceiptOutcome) -> Offsets:
    return Offsets.of(
        (part.first, part.end)
        for receipt in receipts(outcomes)
        if receipt.outcome is outcome
        for part in receipt.covered
    )


def opened(record: RecordOut) -> History:
    back = open_retry_record(
        RecordIn(Origin(record.topic, 0, 0), 0, record.key, record.value, record.headers)
    )
    return back.travel[1]  # type: ignore[union-attr]


def waiting_record(
    destination_id: str, *, attempt_count: int = 1, not_before_ms: int = 0, deadline_s: float = 60
) -> RecordIn:
    with_value = events(1)[0]

    history = History(
        attempt_count=attempt_count,
        park_count=0,
        first_attempt_at_ms=0,
        deadline_at_ms=now_ms() + round(deadline_s * 1000),
        not_before_ms=not_before_ms,
    )
    headers = retry_headers(open_stream_record(with_value), destination_id, history, now_ms=0)
    return RecordIn(Origin(retry_topic("30s"), 1, 9), 0, b"k", with_value.value, headers)
