"""The state of each event: from its last valid receipt, and its waiting or dead record."""

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from gateway.control.lookup.whereabouts import At, counts_of, whereabouts
from shared.event.envelope import Envelope, History
from shared.event.record import Origin, RecordIn
from shared.proof.outcome_sets import OutcomeSets
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.proof.trail import Trail
from shared.retry.decision import DeadLetter, RetryLater
from shared.retry.routing import route
from shared.retry.schedule import RetrySchedule
from tests.support.suite import samples
from tests.support.suite.samples import NOW_MS, a_history, an_envelope

SCHEDULE = RetrySchedule()
TOPIC = "hifi.stream.orders"
FIVE = [Origin(TOPIC, 0, offset) for offset in range(5)]
CRM = "orders/crm"


def a_receipt(
    first: int,
    end: int,
    outcome: ReceiptOutcome,
    *,
    ended_at_ms: int = NOW_MS,
    redrive_count: int = 0,
    destination_id: str = CRM,
) -> Receipt:
    return samples.a_receipt(
        outcome,
        (first, end),
        destination_id=destination_id,
        reason=f"because_{outcome.value}",
        attempt=2,
        started_at_ms=ended_at_ms - 5,
        ended_at_ms=ended_at_ms,
        redrive_count=redrive_count,
    )


def keep(trail: Trail, envelope: Envelope, history: History, *, tier: str = "", at: int) -> None:
    """Put a record of the event into a tier, or into dead letters."""
    if tier:
        where = next(one for one in SCHEDULE.tiers if one.name == tier)
        row = route(RetryLater(where, history), envelope, CRM, now_ms=NOW_MS)
    else:
        row = route(DeadLetter("status_400", history), envelope, CRM, now_ms=NOW_MS)
    place = Origin(row.topic, 1, at)
    record = RecordIn(place, NOW_MS + at, row.key, row.value, row.headers)
    (trail.take_retry if tier else trail.take_dead)(record)


def test_each_event_is_where_its_last_receipt_says() -> None:
    trail = Trail.of(FIVE)
    history = replace(a_history(attempt_count=1), last_status=503, last_detail="busy")
    trail.receipts = [
        a_receipt(0, 1, ReceiptOutcome.DELIVERED),
        a_receipt(1, 3, ReceiptOutcome.WAITING),
        a_receipt(3, 4, ReceiptOutcome.DEAD),
    ]
    keep(trail, an_envelope(1), history, tier="30s", at=7)
    keep(trail, an_envelope(1), history, tier="5m", at=900)
    keep(trail, an_envelope(3), replace(history, last_status=400), at=17)
    told = whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM]
    assert [told[one].state for one in FIVE] == [
        *(At.DELIVERED, At.WAITING, At.QUEUED, At.DEAD, At.QUEUED)
    ]
    assert counts_of(told) == {"delivered": 1, "waiting": 1, "dead": 1, "queued": 2, "unknown": 0}
    said = {"at_ms": NOW_MS, "attempts": 2}
    assert told[FIVE[0]].fields() == {**said, "state": "delivered", "reason": "because_delivered"}
    assert told[FIVE[1]].fields() == {
        **said,
        "state": "waiting",
        "reason": "because_waiting",
        "last_status": 503,
        "last_detail": "busy",
        "tier": "5m",
        "due_at_ms": NOW_MS + 900 + 300_000,
        "deadline_at_ms": history.deadline_at_ms,
    }
    # The receipt names a record that does not exist.
    assert told[FIVE[2]].fields() == {"state": "queued"}
    dead = told[FIVE[3]].fields()
    assert (dead["state"], dead["last_status"], dead["place"]) == ("dead", 400, "1:17")
    assert told[FIVE[4]].fields() == {"state": "queued"}


def test_an_event_is_not_due_before_its_destination_wants_it() -> None:
    trail = Trail.of(FIVE)
    trail.receipts = [a_receipt(1, 2, ReceiptOutcome.WAITING)]
    history = replace(a_history(), not_before_ms=NOW_MS + 10**6)
    keep(trail, an_envelope(1), history, tier="30s", at=7)
    told = whereabouts(trail, FIVE, [], SCHEDULE)[CRM]
    assert told[FIVE[1]].due_at_ms == NOW_MS + 7 + 10**6


def test_what_was_not_read_to_its_end_is_unknown() -> None:
    trail = Trail.of(FIVE)
    trail.is_whole = False
    told = whereabouts(trail, FIVE, ["orders/erp", CRM], SCHEDULE)
    assert list(told) == [CRM, "orders/erp"]
    assert {one.state for one in told[CRM].values()} == {At.UNKNOWN}


def test_a_death_without_a_dead_letter_leaves_the_event_waiting() -> None:
    trail = Trail.of(FIVE)
    trail.receipts = [
        a_receipt(1, 2, ReceiptOutcome.WAITING),
        a_receipt(1, 2, ReceiptOutcome.DEAD, ended_at_ms=NOW_MS + 500),
    ]
    keep(trail, an_envelope(1), a_history(), tier="30s", at=7)
    assert whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM][FIVE[1]].state is At.WAITING
    keep(trail, an_envelope(1), a_history(), at=9)
    assert whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM][FIVE[1]].state is At.DEAD


def test_what_is_said_after_a_re_drive_has_records_of_its_own() -> None:
    trail = Trail.of(FIVE)
    again = replace(a_history(), redrive_count=1)
    keep(trail, an_envelope(1), a_history(), at=9)
    trail.receipts = [
        a_receipt(1, 2, ReceiptOutcome.DEAD),
        a_receipt(1, 2, ReceiptOutcome.WAITING, redrive_count=1),
    ]
    # The redrive has a receipt but no waiting record yet: the event is where it was.
    assert whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM][FIVE[1]].state is At.DEAD
    keep(trail, an_envelope(1), again, tier="30s", at=7)
    assert whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM][FIVE[1]].state is At.WAITING
    # The dead letter from before the redrive no longer counts.
    trail.receipts.append(a_receipt(1, 2, ReceiptOutcome.DEAD, redrive_count=1))
    assert whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM][FIVE[1]].state is At.WAITING
    keep(trail, an_envelope(1), again, at=20)
    told = whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM][FIVE[1]]
    assert (told.state, told.fields()["place"]) == (At.DEAD, "1:20")


def test_an_event_whose_last_record_may_be_unread_is_unknown() -> None:
    trail = Trail.of(FIVE)
    trail.is_whole = False
    trail.receipts = [
        a_receipt(0, 1, ReceiptOutcome.DELIVERED),
        a_receipt(1, 3, ReceiptOutcome.WAITING),
        a_receipt(2, 3, ReceiptOutcome.DEAD, ended_at_ms=NOW_MS + 500),
    ]
    keep(trail, an_envelope(1), a_history(), tier="30s", at=7)
    keep(trail, an_envelope(2), a_history(), tier="30s", at=7)
    told = whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM]
    # Time ran out before dead letters were read: the third event is dead, or waits as before.
    assert [told[one].state for one in FIVE[:3]] == [At.DELIVERED, At.WAITING, At.UNKNOWN]


def test_of_two_deliveries_the_first_is_told() -> None:
    trail = Trail.of(FIVE)
    for ended_ms in (NOW_MS + 20, NOW_MS + 10, NOW_MS + 30):
        trail.receipts.append(a_receipt(0, 5, ReceiptOutcome.DELIVERED, ended_at_ms=ended_ms))
    assert whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM][FIVE[2]].at_ms == NOW_MS + 10


receipts = st.builds(
    lambda first, count, outcome, redrives, ended: a_receipt(
        first, first + count, outcome, redrive_count=redrives, ended_at_ms=ended
    ),
    st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from(ReceiptOutcome),
    st.integers(0, 2),
    st.integers(0, 5),
)


@given(st.lists(receipts, max_size=12))
def test_an_event_is_where_the_books_count_it(said: list[Receipt]) -> None:
    trail = Trail.of(FIVE)
    trail.receipts = said
    books = OutcomeSets()
    for one in said:
        (covered,) = one.covered
        books.take(one.outcome, covered.first, covered.end, redrive_count=one.redrive_count)
    for offset, redrives in product(range(5), range(3)):
        history = replace(a_history(), redrive_count=redrives)
        keep(trail, an_envelope(offset), history, tier="30s", at=1)
        keep(trail, an_envelope(offset), history, at=1)
    told = whereabouts(trail, FIVE, [CRM], SCHEDULE)[CRM]
    for origin in FIVE:
        expected = {
            At.DELIVERED: origin.offset in books.delivered,
            At.WAITING: origin.offset in books.waiting,
            At.DEAD: origin.offset in books.dead,
        }
        counted = [at for at, is_there in expected.items() if is_there] or [At.QUEUED]
        assert [told[origin].state] == counted
