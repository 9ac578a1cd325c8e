"""The audit counts pipelines' work separately: events written, and events left out."""

from dataclasses import replace

from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, Evidence
from observe.audit.ledger import Ledger
from shared.event.record import KafkaPartition
from shared.proof.balance import Balance
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, MinuteState, PipelineView
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome

TOPIC, LANE = "hifi.stream.eu", "eu/pipeline:p"
M0, M1 = 1_699_999_980_000, 1_700_000_040_000


def a_claim(first: int, end: int, minute: int, *, is_derived: bool) -> Claim:
    return Claim(TOPIC, 0, minute, first, end, M0, (-1, 0, 0), is_derived)


def test_events_that_pipelines_wrote_are_counted_apart() -> None:
    books = AuditBooks({TOPIC: Ledger()})
    ledger = books.ledgers[TOPIC]
    for first, end, is_derived in ((0, 3, False), (3, 5, True), (9, 10, True)):
        ledger.enter(a_claim(first, end, M0, is_derived=is_derived), is_from_log=True)
    ledger.enter(a_claim(5, 9, M1, is_derived=False), is_from_log=True)
    # Events that a row of the ledger names need not be read again.
    ledger.enter(replace(a_claim(1, 2, M0, is_derived=False), ledger=(0, 7, 7)))
    assert books.in_log(TOPIC, M0) == {
        KafkaPartition(TOPIC, 0): Offsets.of([(0, 1), (2, 5), (9, 10)])
    }
    assert (books.acked(TOPIC, M0), ledger.look(M0).derived) == (6, 3)
    assert ledger.look(M1).derived == 0


def a_receipt(not_passed: dict[str, dict[int, int]]) -> bytes:
    return Receipt(
        destination_id=LANE,
        outcome=ReceiptOutcome.DELIVERED,
        reason="",
        batch_id="b",
        event_count=9,
        covered=(CoveredOffsets(TOPIC, 0, 0, 9),),
        minutes={},
        event_time_ms_min=0,
        accepted_at_ms_min=0,
        attempt=1,
        started_at_ms=1,
        ended_at_ms=2,
        not_passed=not_passed,
    ).to_json()


def test_what_was_not_passed_on_adds_up_by_lane_minute_and_outcome() -> None:
    first, second = Evidence(), Evidence()
    first.take_sheet(a_receipt({"filtered": {M0: 2, M1: 1}, "late": {M0: 1}}))
    second.take_sheet(a_receipt({"filtered": {M0: 5}}))
    first.merge(second)
    assert first.not_passed == {
        (LANE, M0): {"filtered": 7, "late": 1},
        (LANE, M1): {"filtered": 1},
    }


def test_what_a_pipeline_passed_on_is_the_rest_of_what_it_delivered() -> None:
    counts = {"filtered": 3, "late": 1}
    books = MinuteBooks("eu", LANE, M0, MinuteState.CHECKED, 9, 8, 0, 1, 0, not_passed=counts)
    assert books.passed == 4
    view = PipelineView("eu", "p", Balance(), rates={"passed": 1.5, "dead": 0.5})
    assert view.events_per_s == 2.0
