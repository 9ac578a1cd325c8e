"""A book whose log has become shorter, by retention or because its topic was recreated."""

from dataclasses import replace

from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.strands.way import Laggard
from delivery.lanes.units import JobKind, Span, Unit
from tests.unit.delivery.lanes.test_book import A, Driver, strand


def test_what_kafka_has_no_more_is_skipped_when_a_person_says_so() -> None:
    driver = Driver({A: 9})
    driver.enter()
    (span,) = driver.spans().values()
    driver.book.cut(strand(), span, 0, not_before_s=1e9)
    assert driver.book.skip(strand(), 7)
    assert driver.spans(1.0) == {strand(): Span(7, 9, 9)}
    assert not driver.book.skip(strand(), 3), "no event is missing"
    assert driver.book.is_under_way(strand())


def test_who_skips_to_the_end_of_its_log_has_nothing_left_to_do() -> None:
    driver = Driver({A: 9})
    driver.enter()
    (span,) = driver.spans().values()
    driver.book.cut(strand(), span, 0, not_before_s=1e9)
    assert driver.book.skip(strand(), 9)
    assert driver.plan(1.0) == []
    assert driver.book.laggard("s/a") is None


def is_asked_for_what_is_gone(driver: Driver, now_s: float) -> Span:
    """Return the span whose reader learns from Kafka that events are lost."""
    (job,) = driver.plan(now_s)
    assert job.kind is JobKind.ALONE
    ((where, spans),) = [(unit.where, unit.spans) for unit in job.units]
    assert (where, spans) == (A, {"s/a": Span(500, 501)})
    return spans["s/a"]


def test_a_mark_beyond_the_end_of_a_log_is_tried_until_a_person_says_go_on() -> None:
    """In a recreated topic, a lane that waits for its old offset would skip new events."""
    driver = Driver({A: 5})
    driver.enter("a", Mark(500, 520), linger_s=60.0)
    driver.enter("b", Mark(3, 3))
    for now_s in (0.0, 9.0):
        jobs = driver.plan(now_s)
        for job in jobs:
            driver.turns.end(job)
        by_kind = {job.kind: job.units for job in jobs}
        (alone,) = by_kind.pop(JobKind.ALONE)
        assert alone == Unit(A, {"s/a": Span(500, 501)}), "others read the present log"
        assert [list(unit.spans) for units in by_kind.values() for unit in units] == [["s/b"]] * (
            not now_s
        )
        span = alone.spans["s/a"]
        driver.book.cut(strand(), span, 500, not_before_s=now_s + 5.0)
        # The log grows meanwhile.
        driver.book.see_ends({A: 8})
    assert driver.book.position("s/a", [A]) == {A: 500}
    assert driver.book.laggard("s/a") == Laggard(strand(), 0.0, is_sending=False)
    assert driver.book.skip(strand(), 2)
    # All are in doubt: if a broker lost only the end of the log, some may have been sent.
    assert driver.book.mark(strand()) == Mark(2, 8)
    driver.plan(60.0)
    assert strand() not in driver.spans(119.0), "it waits for its batch to fill"
    assert driver.spans(120.0)[strand()] == Span(2, 8, 8)


def test_a_log_that_becomes_shorter_is_told_of_while_it_is_read() -> None:
    driver = Driver({A: 500})
    driver.enter("a", Mark(500, 500))
    driver.enter("b", Mark(497, 500))
    (span,) = driver.spans().values()
    driver.book.see_ends({A: 5})
    found = is_asked_for_what_is_gone(driver, 1.0)
    # The report arrives after a person said to continue; it describes the log as it was before.
    assert driver.book.skip(strand(), 0)
    driver.book.cut(strand(), found, 500, not_before_s=1e9)
    assert driver.book.position("s/a", [A]) == {A: 0}
    assert driver.spans(2.0) == {strand(): Span(0, 5, 5)}
    driver.book.cut(strand("b"), span, 497, not_before_s=0.0)
    assert driver.book.mark(strand("b")) == Mark(497, 497), "it can have sent no more"


def test_a_log_that_has_grown_to_where_one_is_cannot_be_told_from_the_old_one() -> None:
    driver = Driver({A: 5})
    driver.enter("a", Mark(500, 500))
    driver.book.see_ends({A: 500})
    assert driver.plan() == []
    driver.book.see_ends({A: 501})
    assert driver.spans() == {strand(): Span(500, 501)}


def test_what_followed_its_log_ahead_of_the_driver_is_not_beyond_it() -> None:
    driver = Driver({A: 5})
    driver.enter(kind=JobKind.FOLLOWING)
    (span,) = driver.spans().values()
    driver.book.went(strand(), Mark(9, OPEN))
    driver.book.see_ends({A: 7})
    driver.book.cut(strand(), span, 9, not_before_s=0.0)
    driver.book.follow("s/a", is_following=False)
    driver.lanes["s/a"] = replace(driver.lanes["s/a"], kind=JobKind.SHARED)
    driver.book.see_ends({A: 7})
    assert driver.plan(1.0) == []
    driver.book.see_ends({A: 10})
    assert driver.spans(1.0) == {strand(): Span(9, 10)}
