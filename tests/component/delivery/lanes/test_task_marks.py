"""A worker settles log entries that are not events."""

from delivery.lanes import task
from delivery.lanes.units import Span
from shared.config.destination import Destination
from shared.event.record import KafkaPartition
from shared.event.topics import RECEIPTS
from shared.proof.receipt import ReceiptOutcome, receipts_of
from shared.runtime.kafka.log_client import FetchAnswer
from tests.component.delivery.test_task import Ground, ground
from tests.support.delivery.deliver_runs import TOPIC, events
from tests.support.delivery.memory_log import MemoryLog
from tests.support.servers.scripted_destination import always

__all__ = ["ground"]


class MarkedLog(MemoryLog):
    """A log whose last entry is the marker of a transaction."""

    def _answer(self, where: KafkaPartition, at: int) -> FetchAnswer:
        answer = super()._answer(where, at)
        return answer._replace(reached=self._end(where)) if answer.records else answer

    def _end(self, where: KafkaPartition) -> int:
        return super()._end(where) + 1


def test_of_what_holds_no_event_is_told_that_nothing_is_owed(ground: Ground) -> None:
    ground.kafka = MarkedLog()
    ground.kafka.make(TOPIC, 1)
    ground.kafka.write([*events(3), *events(2, first=5)])
    ground.destination("a")
    ground.destination("b")
    ends = ground.run(a=Span(0, 8), b=Span(4, 6))
    assert {name: (end.at, end.event_count) for name, end in ends.items()} == {
        "a": (8, 5),
        "b": (6, 1),
    }
    assert (ground.stored("a"), ground.stored("b")) == (set(range(8)), {4, 5})
    sheets = [row.value for row in ground.outlet.rows if row.topic == RECEIPTS]
    told = [each for sheet in sheets for each in receipts_of(sheet) if each]
    assert sum(each.event_count for each in told) == 6
    nothing = [each for each in told if each.reason == task.NO_EVENT]
    assert [(each.event_count, each.minutes, each.outcome) for each in nothing] == [
        (0, {}, ReceiptOutcome.DELIVERED)
    ] * 2


def test_what_lies_behind_a_block_is_told_once_that_has_gone(ground: Ground) -> None:
    ground.kafka = MarkedLog()
    ground.kafka.make(TOPIC, 1)
    ground.kafka.write([*events(1), *events(1, first=3)])
    ground.destination("a", always(503))
    in_line = Destination("demo", "a", ground.to["a"].url, order="stream")
    ground.given = {"destinations": {in_line.id: in_line}}
    ends = ground.run(a=Span(0, 5))
    assert ends["a"].at == 0
    assert ends["a"].block is not None
    receipts = [row for row in ground.outlet.rows if row.topic == RECEIPTS]
    told = [each for row in receipts for each in receipts_of(row.value) if each]
    assert all(each.covered for each in told)
    assert ground.stored("a") <= {0}
