"""How a destination's capacity is divided between its strands."""

from dataclasses import replace
from random import Random

import pytest

from delivery.lanes.marks import Mark
from delivery.lanes.strands.way import Way
from delivery.lanes.units import JobKind, Span, Strand
from shared.event.record import KafkaPartition
from tests.unit.delivery.lanes.test_book import A, B, Driver, strand

EVENTS_MAX = 20_000
PLACES = [KafkaPartition("hifi.stream.s", number) for number in range(4)]


class Backlog(Driver):
    """A destination that is a million events behind in each of four Kafka partitions."""

    def __init__(self, mark: Mark, *, kind: JobKind = JobKind.SHARED) -> None:
        super().__init__(dict.fromkeys(PLACES, 1_000_000))
        self.enter("a", mark, kind=kind, events_max=EVENTS_MAX)
        self.under_way: dict[Strand, Span] = {}
        self.now_s = 0.0

    def send(self) -> int:
        """Plan once more, and return the number of events now under way."""
        self.now_s += 1.0
        self.under_way |= self.spans(self.now_s)
        return sum((span.end or 0) - span.begin for span in self.under_way.values())

    def is_done(self, at: Strand) -> None:
        end = self.under_way.pop(at).end or 0
        assert self.book.went(at, Mark(end, max(end, self.book.mark(at).until)))
        self.turns.running.clear()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", list(JobKind)[:3])
@pytest.mark.parametrize("mark", [Mark(0, 0), Mark(0, 900_000)])
def test_no_more_is_under_way_than_a_destination_takes_at_once_as_strands_become_free(
    mark: Mark, kind: JobKind, seed: int
) -> None:
    dice, driver = Random(seed), Backlog(mark, kind=kind)
    for _ in range(60):
        assert EVENTS_MAX * 0.95 <= driver.send() <= EVENTS_MAX + len(PLACES)
        # Requests do not end together: a few strands are done at a time.
        for each in dice.sample(list(driver.under_way), dice.choice((1, 1, 1, 2, 4))):
            driver.is_done(each)


def test_no_more_strands_are_sent_than_requests_and_each_has_its_turn() -> None:
    """Four requests with a quarter of the events each take four times as long, and are parked."""
    driver = Backlog(Mark(0, 0))
    driver.lanes["s/a"] = replace(driver.lanes["s/a"], events_max=500, strands_max=1)
    done: list[Strand] = []
    for _ in range(8):
        assert driver.send() == 500
        assert driver.send() == 500, "the spans under way are full"
        (one,) = driver.under_way
        driver.is_done(one)
        done.append(one)
    assert set(done[:4]) == set(done[4:]) == {strand("a", where) for where in PLACES}
    driver.lanes["s/a"] = replace(driver.lanes["s/a"], strands_max=3)
    assert len(driver.spans(99.0)) == 3


@pytest.mark.parametrize("kind", [JobKind.FOLLOWING, JobKind.APART])
def test_who_follows_its_log_or_parks_does_so_in_every_kafka_partition(kind: JobKind) -> None:
    driver = Driver({A: 9, B: 9})
    driver.enter("a", Mark(5, 5), kind=kind, events_max=1)
    driver.lanes["s/a"] = replace(driver.lanes["s/a"], strands_max=1)
    assert driver.spans().keys() == {strand("a", A), strand("a", B)}


@pytest.mark.parametrize(
    ("body_format", "batch_count_max", "count"),
    [("json", 500, 500), ("ndjson", 7, 7), ("single", 500, 1)],
)
def test_what_may_have_been_sent_is_divided_between_batches_however_much_goes_at_once(
    body_format: str, batch_count_max: int, count: int
) -> None:
    """A receiver recognizes repeats by batch ids, so repeats must form the same batches again."""
    driver = Driver({A: 90_000, B: 90_000})
    mark = Mark(123, 40_123 + 45)
    driver.enter("a", mark, body_format=body_format, batch_count_max=batch_count_max)
    dice, now_s, at, ends = Random(count), 0.0, 123, []
    while at < mark.until:
        now_s += 1.0
        lane = driver.lanes["s/a"]
        driver.lanes["s/a"] = replace(lane, events_max=dice.choice((1, 333, 5_001, 20_000)))
        span = driver.spans(now_s)[strand()]
        assert (span.begin, span.maybe_sent) == (at, mark.until)
        at = span.end or 0
        ends.append(at)
        driver.book.went(strand(), Mark(at, mark.until))
        driver.turns.running.clear()
    assert ends.pop() == mark.until
    assert len(ends) > 1
    assert {(end - 123) % count for end in ends} == {0}


def test_of_those_that_rest_none_is_looked_up_whatever_is_planned() -> None:
    """Twenty thousand strands may rest, and each mark that arrives causes a plan."""
    driver = Driver({A: 9})
    for number in range(50):
        driver.enter(str(number), kind=JobKind.APART, events_max=3, rest_s=5.0)
    for at, span in driver.spans(100.0).items():
        driver.book.ended(at, span, 3)
    looked_up: list[Strand] = []

    class WatchedBook(dict[Strand, Way]):
        def __getitem__(self, strand: Strand) -> Way:
            looked_up.append(strand)
            return super().__getitem__(strand)

    driver.book._ways = WatchedBook(driver.book._ways)
    assert driver.plan(102.0) == []
    assert looked_up == []
    assert len(driver.spans(105.0)) == 50


def test_a_rest_of_its_lane_does_not_end_the_wait_of_a_strand_that_was_cut() -> None:
    driver = Driver({A: 9, B: 0})
    driver.enter(kind=JobKind.APART, rest_s=5.0)
    (span,) = driver.spans(100.0).values()
    driver.book.cut(strand(), span, 0, not_before_s=130.0)
    driver.book.see_ends({B: 4})
    assert driver.spans(105.0) == {strand(where=B): Span(0, 4)}
    assert driver.plan(129.9) == []
    assert driver.spans(130.0) == {strand(): Span(0, 9, 9)}


def test_a_rest_of_its_lane_puts_off_no_strand_that_is_in_doubt() -> None:
    """Otherwise a strand in doubt would almost never check the log after its wait."""
    driver = Driver({A: 9, B: 1_000})
    driver.enter(kind=JobKind.FOLLOWING)
    span = driver.spans(100.0)[strand()]
    driver.book.cut(strand(), span, 0, not_before_s=102.0)
    driver.enter(kind=JobKind.APART, rest_s=5.0)
    driver.book.cut(strand(), span, 0, not_before_s=102.0)
    for now_s in (100.5, 101.5):
        driver.plan(now_s)
    driver.book.see_ends({A: 9}, as_of_s=102.0)
    assert driver.spans(102.1)[strand()] == Span(0, 9, 9)


def test_a_strand_that_alone_has_something_has_all_that_its_destination_takes() -> None:
    driver = Driver({A: 1_000_000, B: 0})
    driver.enter(events_max=EVENTS_MAX)
    assert driver.spans() == {strand(): Span(0, EVENTS_MAX)}


def test_what_may_have_ended_its_worker_is_planned_by_itself_until_it_has_gone_on() -> None:
    """Otherwise an event that kills each worker would stop all who share its job forever."""
    driver = Driver({A: 5})
    for name in ("a", "b", "c"):
        driver.enter(name)
    (job,) = driver.plan()
    for name, span in job.units[0].spans.items():
        driver.book.cut(Strand(name, A), span, 0, not_before_s=1.0, is_suspect=name != "s/c")
    jobs = driver.plan(2.0)
    assert sorted((each.kind, *each.units[0].spans) for each in jobs) == [
        (JobKind.ALONE, "s/a"),
        (JobKind.ALONE, "s/b"),
        (JobKind.SHARED, "s/c"),
    ]
    for each in jobs:
        ((name, span),) = each.units[0].spans.items()
        assert driver.book.ended(Strand(name, A), span, 5)
        driver.turns.end(each)
    driver.book.see_ends({A: 9})
    (job,) = driver.plan(3.0)
    assert sorted(job.units[0].spans) == ["s/a", "s/b", "s/c"]
