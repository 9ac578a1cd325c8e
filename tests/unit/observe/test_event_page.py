"""The page of an event: its steps in order, its present place, and the events sent with it."""

from dataclasses import replace

from msgspec import structs

from console.pages.events.event_page import batches_of, now_at
from console.pages.events.event_steps import steps_of
from shared import wording
from shared.event.envelope import DEAD_AT, REASON, History
from shared.event.record import Origin
from shared.event.topics import retry_topic
from shared.proof.last_answer import FailedTry
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome
from shared.proof.trail import KeptRecord
from shared.retry.dead_letter import REDRIVEN_REASON
from shared.retry.schedule import RetrySchedule
from tests.support.console.console_fixtures import found_event

AT_MS = 1_790_000_000_000


def test_the_steps_of_an_event_stand_in_their_order() -> None:
    found = found_event("e-1")
    schedule = RetrySchedule()
    history = replace(
        History.fresh(now_ms=AT_MS, deadline_s=schedule.deadline_s),
        attempt_count=1, cause="status_503", last_status=503, last_detail="busy",
    )  # fmt: skip
    envelope = replace(found.envelope, destination_id="orders/billing", history=history)
    place = Origin(retry_topic("30s"), 1, 9)
    waits = KeptRecord(envelope, place, AT_MS + 100, {})
    dead_headers = {REASON: b"deadline", DEAD_AT: b"%d" % (AT_MS + 90_000)}
    dead = KeptRecord(envelope, place, AT_MS + 90_000, dead_headers)
    trail = replace(found.trail, retries=[waits], dead=[dead])
    steps = steps_of(replace(found, trail=trail), schedule)
    assert [step.what.split()[0] for step in steps] == [
        "POST", "Stored", "Not", "Not", "Waits", "Delivered", "Dead",
    ]  # fmt: skip
    facts = dict(steps[4].facts)
    assert facts["due"] == wording.moment(AT_MS + 30_100)
    assert facts["last status"] == "503"
    assert facts["last answer"] == "busy"
    assert "deadline" in steps[6].what


def test_an_event_that_was_put_back_names_its_restore() -> None:
    found = replace(found_event("e-1"), restored_by="spring")
    stored = steps_of(found, RetrySchedule())[1]
    assert stored.what == "Put back from an archive by the restore spring"
    assert stored.at_ms == found.stored_at_ms


def test_each_failed_try_of_an_event_is_a_step_with_its_answer() -> None:
    found = found_event("e-1")
    refused, delivered = found.trail.receipts
    tries = (
        FailedTry(AT_MS + 60, "connect_refused", 3, text="nobody listens"),
        FailedTry(AT_MS + 90, "status_503", 2_100, 503, "busy" + "!" * 300, {"retry-after": "7"}),
    )
    trail = replace(found.trail, receipts=[structs.replace(refused, failed_tries=tries), delivered])
    steps = steps_of(replace(found, trail=trail), RetrySchedule())
    assert [step.what for step in steps[2:5]] == [
        "Not taken by orders/billing: connect refused",
        "Not taken by orders/billing: 503",
        "Not delivered to orders/billing; waits for another attempt",
    ]
    first, second = dict(steps[2].facts), dict(steps[3].facts)
    assert (first["status"], first["what happened"]) == ("no answer", "nobody listens")
    assert (second["status"], second["took"]) == ("503", wording.duration(2.1))
    assert second["retry-after"] == "7"
    assert second["answer"] == "busy" + "!" * 196


def test_where_an_event_is_at_each_destination_and_what_comes_next() -> None:
    found, schedule = found_event("e-1"), RetrySchedule()
    refused, delivered = found.trail.receipts
    history = replace(History.fresh(now_ms=AT_MS, deadline_s=10), attempt_count=1)

    def now(*receipts: Receipt, not_before_ms: int | None = None) -> list[tuple[str, str]]:
        kept = []
        if not_before_ms is not None:
            waits = replace(history, not_before_ms=not_before_ms)
            envelope = replace(found.envelope, destination_id="orders/billing", history=waits)
            kept = [KeptRecord(envelope, Origin(retry_topic("30s"), 1, 9), AT_MS + 100, {})]
        trail = replace(found.trail, receipts=list(receipts), retries=kept)
        return now_at(replace(found, trail=trail), schedule)

    def billing(says: str) -> list[tuple[str, str]]:
        return [("orders/billing", says)]

    due = "waits (status_503); next attempt at "
    tier, asked = wording.moment(AT_MS + 30_100), wording.moment(AT_MS + 90_000)
    assert now(refused, not_before_ms=0) == billing(due + tier)
    assert now(refused, not_before_ms=AT_MS + 90_000) == billing(due + asked)
    assert "could not be read" in now(refused)[0][1]
    delivered_at = f"delivered at {wording.moment(AT_MS + 30_160)}"
    assert now(delivered, refused, not_before_ms=0) == billing(delivered_at)
    dead = structs.replace(refused, outcome=ReceiptOutcome.DEAD, reason="status_400")
    assert now(refused, dead)[0][1].startswith("given up at ")
    redriven = structs.replace(refused, reason=REDRIVEN_REASON, redrive_count=1)
    assert now(dead, redriven) == billing("sent again from dead letters; no answer yet")
    assert now() == []


def test_what_was_sent_together_with_an_event_is_named_or_counted() -> None:
    found = found_event("e-1")
    origin = found.envelope.origin
    covered = (
        CoveredOffsets(origin.topic, origin.partition, origin.offset - 1, origin.offset + 11),
    )
    together = structs.replace(found.trail.receipts[0], covered=covered)
    around = {origin.offset - 2: "e-x", origin.offset - 1: "e-0", origin.offset + 1: "<e&2>"}
    trail = replace(found.trail, receipts=[together])
    page = str(batches_of(replace(found, trail=trail, around=around)))
    assert "11 other events to orders/billing: " in page
    assert "/events?stream=orders&amp;id=e-0" in page
    assert "&lt;e&amp;2&gt;" in page
    assert "e-x" not in page
    alone = structs.replace(together, event_count=1)
    assert str(batches_of(replace(found, trail=replace(trail, receipts=[alone])))) == ""
    many = [structs.replace(together, batch_id=f"b-{n}", covered=()) for n in range(9)]
    page = str(batches_of(replace(found, trail=replace(trail, receipts=many))))
    assert [f"b-{n}" in page for n in range(9)] == [False] * 4 + [True] * 5
