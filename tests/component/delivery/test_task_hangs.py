"""What a worker does with those that do not answer (ADR 0062)."""

import threading

from delivery.lanes.units import Span
from shared.event.topics import retry_topic
from tests.component.delivery.test_task import (
    PATIENCE_S,
    Ground,
    ground,
)
from tests.support.deliver_runs import events, opened
from tests.support.scripted_destination import Reply

__all__ = ["ground"]


def test_a_job_in_a_hurry_waits_a_moment_for_an_answer_and_parks_what_has_none(
    ground: Ground,
) -> None:
    """ADR 0062: it has a slot that is not lent."""
    is_over = threading.Event()

    def until_all_is_over(_: int, __: object) -> Reply:
        return Reply(200 if is_over.wait(PATIENCE_S) else 400)

    ground.kafka.write(events(2))
    ground.destination("a", until_all_is_over)
    ground.destination("b")
    ground.given = {"patience_s": 2.0}
    ends = ground.run(a=Span(0, 2), b=Span(0, 2))
    is_over.set()
    assert [(ends[name].at, ends[name].error) for name in "ab"] == [(2, ""), (2, "")]
    parked = [row for row in ground.outlet.rows if row.topic == retry_topic("30s", is_parked=True)]
    assert {(opened(row).cause, opened(row).is_ambiguous) for row in parked} == {
        ("slow_answer", True)
    }
    assert len(parked) == 2
