"""The driver closes the marks of strands that no longer follow their logs."""

import asyncio
from dataclasses import replace

import pytest

from delivery.lanes.marks import OPEN, Mark, mark_record
from delivery.lanes.units import Span, StrandEnd
from tests.unit.delivery.lanes.test_loop import BESIDE, HERE, TO, Driver

REAL_TIME = replace(TO, latency="realtime")


def closing(*, done: bool, is_paused: bool, more: int = 0) -> Driver:
    """Return a driver whose following strand has ended at 9; its outlet has all later records."""
    driver = Driver(marks={HERE: Mark(9, 9), BESIDE: Mark(0, 0)})
    driver.configure(REAL_TIME)
    driver.look()
    spans = driver.spans()
    assert spans[HERE].end is None
    if done:
        driver.loop._mark_came(HERE, Mark(9, OPEN, done=spans[HERE].number))
    driver.loop.marks.marks[HERE] = Mark(9, OPEN)
    if more:
        driver.loop.book.ended(BESIDE, spans[BESIDE], 0)
        driver.spans()
        driver.loop._mark_came(HERE, Mark(9 + more, OPEN))
        driver.loop.marks.marks[HERE] = Mark(9 + more, OPEN)
    driver.configure(replace(REAL_TIME, is_paused=is_paused))
    asyncio.run(driver.loop.following.close_marks([StrandEnd(HERE, 9, 0)], spans))
    return driver


@pytest.mark.parametrize("done", [False, True])
def test_what_followed_its_log_and_is_paused_has_sent_no_more_than_it_says(*, done: bool) -> None:
    driver = closing(done=done, is_paused=True)
    assert driver.outlet.rows == [mark_record(HERE, Mark(9, 9))]
    assert closing(done=done, is_paused=False).outlet.rows == []


def test_a_late_report_closes_no_mark_of_a_span_that_goes_on() -> None:
    driver = closing(done=True, is_paused=True, more=3)
    assert driver.outlet.rows == []
    assert driver.loop.marks.marks[HERE] == Mark(12, OPEN)


def test_a_repeat_in_a_job_that_follows_leaves_its_mark_as_it_is() -> None:
    """Otherwise the next events would be sent without a mark on disk that allows it."""
    driver = Driver(marks={HERE: Mark(2, 5), BESIDE: Mark(0, 0)})
    driver.configure(REAL_TIME)
    driver.look()
    spans = driver.spans()
    assert spans[HERE] == Span(2, 5, 5)
    driver.loop.marks.marks[HERE] = Mark(5, 5)
    asyncio.run(driver.loop.following.close_marks([StrandEnd(HERE, 5, 3)], spans))
    assert driver.loop.marks.marks[HERE] == Mark(5, 5)
