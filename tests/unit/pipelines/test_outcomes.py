"""Receipts of pipelines: every read event is covered once, and dead events have their reasons."""

from pipelines.jobs.outcomes import Results, receipts
from pipelines.lanes.portions import PipelinePortion
from shared.event.record import KafkaPartition
from shared.event.topics import RECEIPTS
from shared.proof.intervals import Offsets
from shared.proof.outcome_sets import OutcomeSets
from shared.proof.receipt import SHEET_BYTES_MAX, Receipt, ReceiptOutcome, receipts_of

FIRST, OTHER = KafkaPartition("hifi.stream.s", 0), KafkaPartition("hifi.stream.s", 1)


def written(portion: PipelinePortion, made: Results) -> list[Receipt]:
    rows = receipts(portion, made, batch_id="b", started_at_ms=10, ended_at_ms=20)
    assert {(row.topic, row.key) for row in rows} <= {(RECEIPTS, portion.lane_id.encode())}
    assert all(len(row.value) <= 2 * SHEET_BYTES_MAX for row in rows)
    found = [receipt for row in rows for receipt in receipts_of(row.value)]
    assert None not in found
    return [receipt for receipt in found if receipt is not None]


def test_what_is_not_dead_is_delivered_and_each_offset_is_covered_once() -> None:
    portion = PipelinePortion("s/pipeline:p", {FIRST: (5, 15), OTHER: (0, 3)})
    dead = {("not_readable", FIRST): Offsets.of([(7, 8), (10, 12)])}
    made = Results(9, {"filtered": {0: 1}}, dead, event_time_ms_min=3, accepted_at_ms_min=4)
    found = written(portion, made)
    assert [(it.outcome, it.reason, it.event_count) for it in found] == [
        (ReceiptOutcome.DELIVERED, "", 10),
        (ReceiptOutcome.DEAD, "not_readable", 3),
    ]
    assert {(it.event_time_ms_min, it.accepted_at_ms_min) for it in found} == {(3, 4)}
    known = OutcomeSets(base=5)
    for receipt in found:
        for covered in receipt.covered:
            if covered.partition == FIRST.partition:
                known.take(receipt.outcome, covered.first, covered.end, redrive_count=0)
    assert not known.no_outcome(15)
    assert list(known.dead) == [(7, 8), (10, 12)]


def test_all_dead_has_no_receipt_of_delivery() -> None:
    portion = PipelinePortion("s/pipeline:p", {FIRST: (5, 6)})
    (only,) = written(portion, Results(dead={("step_failed", FIRST): Offsets.of([(5, 6)])}))
    assert (only.outcome, only.covered[0][2:]) == (ReceiptOutcome.DEAD, (5, 6))


def test_many_holes_are_several_receipts_that_fit_into_records() -> None:
    every_other = Offsets.of((at, at + 1) for at in range(0, 20_000, 2))
    portion = PipelinePortion("s/pipeline:p", {FIRST: (0, 20_000)})
    found = written(portion, Results(dead={("not_readable", FIRST): every_other}))
    assert sum(receipt.event_count for receipt in found) == 20_000
    assert sum(it.event_count for it in found if it.outcome is ReceiptOutcome.DEAD) == 10_000
