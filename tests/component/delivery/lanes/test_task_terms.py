"""A task follows its logs until the latest end time that it received."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from delivery.lanes.following.terms import TERMS_LOG, Term, term_record
from delivery.lanes.units import Span
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import LANES, RECEIPTS
from shared.runtime.clock import now_ms
from tests.component.delivery.test_task import PATIENCE_S, Ground, is_mark, labels, speaks_of
from tests.support.delivery.deliver_runs import events
from tests.support.delivery.memory_log import NODE

NUMBER = 7


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    with ExitStack() as resources:
        yield Ground(monkeypatch, resources)


def tell(ground: Ground, number: int, follow_s: float, lease_s: float = 3_600.0) -> None:
    row = term_record(number, Term(follow_s, now_ms() + round(1_000 * lease_s)))
    at = len(ground.kafka.logs[TERMS_LOG])
    ground.kafka.write([RecordIn(Origin(*TERMS_LOG, at), 1, row.key, row.value, ())])


def follows(ground: Ground, *, number: int, refused: str = "") -> int:
    """Return how far a task gets if its time, unless extended, ends after the first of two events.

    The second event comes half a second later; then the task is asked to end. The topic `refused`
    accepts no row of another strand, which follows the same log.
    """
    ground.kafka.make(TERMS_LOG.topic, 1)
    ground.kafka.write(events(1))
    ground.destination("a")
    marks = 0

    def go_on() -> None:
        tell(ground, number, PATIENCE_S)
        late = lambda: ground.kafka.write(events(1, first=1))  # noqa: E731
        asyncio.get_running_loop().call_later(0.5, late)

    def marked(row: RecordOut) -> Exception | None:
        nonlocal marks
        if speaks_of(row, "b"):
            if row.topic != refused:
                return None
            # Continue only after the task itself knows of the refusal.
            asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, go_on)
            return OSError("no room")
        if is_mark(row):
            marks += 1
            if marks > 1:
                tell(ground, number, 0.0)
            elif not refused:
                go_on()
        return None

    ground.outlet.refusal = marked
    ground.given |= {
        "follow_s": 0.3,
        "terms_at": 0,
        "leaders": dict.fromkeys(ground.kafka.logs, NODE),
    }
    spans = {"a": Span(0, None, number=NUMBER)}
    if refused:
        ground.destination("b")
        spans["b"] = Span(0, None, number=NUMBER + 1)
    end = ground.run(**spans)["a"]
    assert end.error == ""
    return end.at


def test_who_is_given_more_time_goes_on_and_ends_when_it_is_told(ground: Ground) -> None:
    assert follows(ground, number=NUMBER) == 2


def test_what_another_job_is_told_says_nothing_to_this_one(ground: Ground) -> None:
    assert follows(ground, number=NUMBER + 1) == 1


def test_with_its_time_a_task_is_given_a_new_lease(ground: Ground) -> None:
    """Without a new lease the task would treat its strands as another owner's."""
    ground.given = {"ours_until_ms": now_ms() + 450}
    assert follows(ground, number=NUMBER) == 2
    assert labels(ground.to["a"]) == {"e0": False, "e1": False}


@pytest.mark.parametrize("topic", [RECEIPTS, LANES])
def test_if_one_of_them_is_over_they_end_in_time_so_that_it_goes_on_with_the_next_job(
    ground: Ground, topic: str
) -> None:
    """The refused strand has ended, but the task does not know that yet."""
    assert follows(ground, number=NUMBER, refused=topic) == 1


def test_where_nobody_can_be_heard_a_task_ends_at_its_time(ground: Ground) -> None:
    ground.kafka.leaderless = {TERMS_LOG}
    assert follows(ground, number=NUMBER) == 1
