"""A strand that follows its log is free again with its last mark."""

from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.units import JobKind, Span
from tests.unit.delivery.lanes.test_book import A, Driver, strand


def test_who_follows_is_free_by_its_last_mark_whatever_its_job_still_waits_for() -> None:
    """Otherwise a hanging destination would stop all real-time strands of its worker."""
    driver = Driver({A: 0})
    driver.enter(kind=JobKind.FOLLOWING)
    driver.enter("hangs", kind=JobKind.FOLLOWING)
    first = driver.spans()[strand()]
    driver.book.see_ends({A: 5})
    assert driver.book.went(strand(), Mark(5, OPEN))
    assert not driver.book.went(strand(), Mark(5, OPEN)), "the strand still follows its log"
    assert driver.plan(2.0) == []
    assert driver.book.went(strand(), Mark(5, OPEN, done=first.number))
    second = driver.spans(3.0)
    assert second == {strand(): Span(5, None)}, "a hanging neighbour delays only itself"
    assert driver.book.mark(strand()) == Mark(5, OPEN)


def test_a_last_mark_frees_the_span_of_which_it_speaks_and_no_other() -> None:
    driver = Driver({A: 0})
    driver.enter(kind=JobKind.FOLLOWING)
    first = driver.spans()[strand()]
    driver.book.ended(strand(), first, 0)
    second = driver.spans(9.0)[strand()]
    assert not driver.book.went(strand(), Mark(0, OPEN, done=first.number)), "the mark is late"
    assert driver.book.went(strand(), Mark(4, OPEN, done=first.number)), (
        "a late mark may still move the position"
    )
    assert driver.book.is_with(strand(), second)
    # The process that held this lane before uses other numbers.
    other = Driver({A: 0})
    other.book.number = 1_000
    other.enter(kind=JobKind.FOLLOWING)
    theirs = other.spans()[strand()]
    assert theirs.number not in {first.number, second.number, 0}
    assert not driver.book.went(strand(), Mark(4, OPEN, done=theirs.number))
    assert driver.book.is_with(strand(), second)
