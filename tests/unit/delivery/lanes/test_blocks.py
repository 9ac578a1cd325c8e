"""An event that blocks those behind it is retried when it is due, with its earlier attempts."""

from dataclasses import replace

from delivery.lanes.marks import Mark, mark_record, open_mark
from delivery.lanes.strands.blocks import Blocks
from delivery.lanes.units import Job, Span, Strand
from delivery.settling import Block
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from tests.support.suite.samples import NOW_MS, a_history
from tests.unit.delivery.lanes.test_book import A, Driver, strand

WAITING = replace(a_history(attempt_count=3), not_before_ms=NOW_MS + 9, last_attempt_at_ms=NOW_MS)


def span_of(jobs: list[Job]) -> Span:
    ((span,),) = [list(unit.spans.values()) for job in jobs for unit in job.units]
    return span


def test_a_mark_keeps_what_has_become_of_the_event_that_all_wait_for() -> None:
    mark = Mark(5, 7, waiting=WAITING)
    row = mark_record(strand("a", A), mark)
    assert open_mark(row.key or b"", row.value) == (strand("a", A), mark)


def test_it_rests_until_then_and_goes_on_with_what_was_tried() -> None:
    driver = Driver({A: 10})
    driver.enter("a", Mark(0, 0))
    one = strand("a", A)
    first = span_of(driver.plan(now_s=1.0))
    assert first.waiting is None
    block = Block(4, 9, WAITING, sent_until=7)
    assert driver.book.ended(one, first, 4, block, 50.0)
    assert driver.book.blocked() == [one]
    assert driver.book.mark(one) == Mark(4, 7, waiting=WAITING, wait_ms=9)
    # A blocked strand does not count as hanging.
    assert driver.book.laggard(one.destination) is None
    assert driver.plan(now_s=49.0) == []
    again = span_of(driver.plan(now_s=50.0))
    assert (again.begin, again.end, again.maybe_sent, again.waiting) == (4, 7, 7, WAITING)
    assert driver.book.ended(one, again, 7)
    assert driver.book.blocked() == []


def test_what_only_had_no_time_keeps_what_was_known() -> None:
    driver = Driver({A: 10})
    driver.enter("a", Mark(4, 4, waiting=WAITING))
    one = strand("a", A)
    span = span_of(driver.plan(now_s=1.0))
    assert span.waiting == WAITING
    driver.book.ended(one, span, 4, Block(4, 9), 2.0)
    assert driver.book.mark(one).waiting == WAITING


def test_a_worker_that_ends_without_a_word_has_said_it_by_its_mark() -> None:
    driver = Driver({A: 10})
    driver.enter("a", Mark(4, 4))
    one = strand("a", A)
    span = span_of(driver.plan(now_s=1.0))
    older = replace(WAITING, not_before_ms=NOW_MS)
    assert not driver.book.went(one, Mark(4, 10, waiting=WAITING, wait_ms=9), again_s=50.0)
    assert not driver.book.went(one, Mark(4, 10, waiting=older, late=True), again_s=3.0)
    driver.book.cut(one, span, 4, not_before_s=2.0)
    assert driver.book.mark(one).waiting == WAITING
    # Its end is no reason to try the event earlier than its destination has asked.
    assert driver.plan(now_s=49.0) == []
    assert span_of(driver.plan(now_s=50.0)).waiting == WAITING


def test_a_mark_that_comes_before_the_report_says_how_long_the_event_waits() -> None:
    """The job ends when its slowest strand does; the mark is there at once."""
    driver = Driver({A: 10})
    driver.enter("a", Mark(0, 0))
    one = strand("a", A)
    span = span_of(driver.plan(now_s=1.0))
    assert driver.book.went(one, Mark(4, 4, waiting=WAITING, wait_ms=9), again_s=50.0)
    assert not driver.book.ended(one, span, 4, Block(4, 9, WAITING), 60.0)
    assert driver.book.mark(one) == Mark(4, 4, waiting=WAITING, wait_ms=9)
    assert driver.plan(now_s=49.0) == []
    assert span_of(driver.plan(now_s=50.0)).waiting == WAITING


def test_a_person_is_heard_once_and_not_at_each_change_of_another_tenant() -> None:
    driver = Driver({A: 10})
    one = strand("a", A)
    driver.enter("a", Mark(4, 4, waiting=WAITING))
    to = Destination("s", "a", "https://1.1.1.1/", order="stream", resumed_at_ms=7)
    tried: list[Strand] = []
    # The state that knows of it is still on its way.
    blocks = Blocks(driver.book.blocked, tried.append, lambda _: to, lambda _: True)
    for _ in range(3):
        blocks.look(Configuration(destinations={to.id: to}))
    assert tried == [one]
    again = to.resumed(at_ms=8)
    blocks.destination = lambda _: again
    blocks.look(Configuration(destinations={to.id: again}))
    assert tried == [one, one]


def test_after_a_persons_word_a_dead_worker_brings_no_old_wait_back() -> None:
    driver = Driver({A: 10})
    one = strand("a", A)
    driver.enter("a", Mark(4, 4))
    driver.book.let_go_of(one)
    driver.book.enter(one, Mark(4, 4, waiting=WAITING), not_before_s=99.0)
    driver.book.try_now(one)
    span = span_of(driver.plan(now_s=1.0))
    driver.book.cut(one, span, 4, not_before_s=2.0)
    assert span_of(driver.plan(now_s=2.0)).waiting == WAITING


def test_a_persons_word_or_another_order_ends_the_wait() -> None:
    for order, is_resumed, is_tried in [
        ("stream", False, False),
        ("stream", True, True),
        ("key", False, True),
    ]:
        driver = Driver({A: 10})
        one = strand("a", A)
        driver.enter("a", Mark(4, 4, waiting=WAITING))
        driver.book.let_go_of(one)
        driver.book.enter(one, Mark(4, 4, waiting=WAITING), not_before_s=99.0)
        to = Destination("s", "a", "https://1.1.1.1/", order=order)  # type: ignore[arg-type]
        book, known = driver.book, {one.destination: to}
        resumed = [to] if is_resumed else []
        blocks = Blocks(book.blocked, book.try_now, known.get, resumed.__contains__)
        assert driver.plan(now_s=1.0) == []
        blocks.look(Configuration(destinations={to.id: to}))
        assert bool(driver.plan(now_s=1.0)) is is_tried
