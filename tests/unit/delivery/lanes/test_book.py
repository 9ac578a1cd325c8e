"""Plans of a book: who shares a job, how much and when, and which spans count as repeats."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from delivery.lanes.book import Book
from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.strands.way import Laggard
from delivery.lanes.turns import Turns
from delivery.lanes.units import Job, JobKind, Lane, Span, Strand, Unit
from shared.config.destination import Destination
from shared.event.record import KafkaPartition

A, B, C = (KafkaPartition("hifi.stream.s", number) for number in range(3))


BEGIN = Mark(0, 0)


def to(name: str = "a", **settings: object) -> Destination:
    return Destination("s", name, "http://localhost/", **settings)  # type: ignore[arg-type]


def strand(name: str = "a", where: KafkaPartition = A) -> Strand:
    return Strand(f"s/{name}", where)


@dataclass
class Driver:
    """A book, with a lane for each destination."""

    ends: Mapping[KafkaPartition, int]
    lanes: dict[str, Lane] = field(default_factory=dict)
    turns: Turns = field(default_factory=Turns)

    def __post_init__(self) -> None:
        # The workers had little to do, so names do not decide which destinations share a job.
        self.turns.learn(JobKind.SHARED, [], now_s=60.0)
        self.book = Book()
        self.book.see_ends(self.ends)

    def enter(
        self,
        name: str = "a",
        mark: Mark = BEGIN,
        *,
        kind: JobKind = JobKind.SHARED,
        events_max: int = 10_000,
        rest_s: float = 0.0,
        **settings: object,
    ) -> None:
        self.lanes[f"s/{name}"] = Lane(to(name, **settings), kind, events_max, rest_s)
        for where in self.ends:
            self.book.enter(strand(name, where), mark)
        self.book.follow(f"s/{name}", is_following=kind is JobKind.FOLLOWING)

    def plan(self, now_s: float = 0.0) -> list[Job]:
        return self.book.plan(self.lanes.get, self.turns, now_s=now_s)

    def spans(self, now_s: float = 0.0) -> dict[Strand, Span]:
        return {
            Strand(name, unit.where): span
            for job in self.plan(now_s)
            for unit in job.units
            for name, span in unit.spans.items()
        }


def test_those_that_are_well_share_a_job_and_are_read_once() -> None:
    driver = Driver({A: 5, B: 3})
    driver.enter("a")
    driver.enter("b", Mark(3, 3))
    (job,) = driver.plan()
    assert job.kind is JobKind.SHARED
    assert {unit.where: dict(unit.spans) for unit in job.units} == {
        A: {"s/a": Span(0, 5), "s/b": Span(3, 5)},
        B: {"s/a": Span(0, 3)},
    }
    first = next(unit for unit in job.units if unit.where == A)
    assert (first.begin, first.end) == (0, 5)
    assert set(first.strands) == {strand("a"), strand("b")}
    assert driver.book.is_under_way(strand("a"))
    assert driver.plan(9.0) == [], "all events are under way"


def test_each_kind_has_jobs_of_its_own() -> None:
    driver = Driver({A: 5})
    for name, kind in (("a", JobKind.SHARED), ("b", JobKind.APART), ("c", JobKind.FOLLOWING)):
        driver.enter(name, kind=kind)
    kinds = {job.kind: [name for unit in job.units for name in unit.spans] for job in driver.plan()}
    assert kinds == {JobKind.SHARED: ["s/a"], JobKind.APART: ["s/b"], JobKind.FOLLOWING: ["s/c"]}


def test_a_destination_that_is_far_behind_shares_with_nobody_and_has_a_task_for_each_place() -> (
    None
):
    driver = Driver({A: 2_001, B: 5, C: 9_000})
    driver.enter("far", events_max=900)
    driver.ends = {C: 9_000}
    driver.enter("near", Mark(8_000, 8_000))
    shared, alone = sorted(driver.plan(), key=lambda job: -len(job.kind))
    assert (shared.kind, alone.kind) == (JobKind.SHARED, JobKind.ALONE)
    assert [list(unit.spans) for unit in shared.units] == [["s/near"]]
    # Each strand gets an equal share of what its destination may have at once.
    assert sorted((unit.where, unit.spans["s/far"]) for unit in alone.units) == [
        (A, Span(0, 300)),
        (B, Span(0, 5)),
        (C, Span(0, 300)),
    ]
    assert [len(task) for task in alone.tasks] == [1, 1, 1]


def test_who_is_slow_shares_with_the_slow_however_far_behind() -> None:
    driver = Driver({A: 90_000})
    driver.enter(kind=JobKind.APART, events_max=4)
    (job,) = driver.plan()
    assert (job.kind, job.units[0].spans["s/a"]) == (JobKind.APART, Span(0, 4))


def test_a_job_of_the_slow_has_as_many_tasks_as_its_deliveries_are_worth() -> None:
    places = [KafkaPartition("hifi.stream.s", number) for number in range(12)]
    for count, tasks in ((30, 1), (40, 2), (500, 4)):
        driver = Driver(dict.fromkeys(places, count))
        driver.enter(kind=JobKind.APART)
        (job,) = driver.plan()
        assert (len(job.tasks), job.worker) == (tasks, None)
        loads = [sum(unit.spans["s/a"].end or 0 for unit in task) for task in job.tasks]
        assert max(loads) - min(loads) <= count
        assert sorted(unit.where for unit in job.units) == sorted(places)


def test_those_that_are_well_have_the_same_worker_each_time() -> None:
    driver = Driver({A: 1, B: 1})
    driver.turns = Turns(worker_count=2)
    names = [f"d{number}" for number in range(12)]
    for name in names:
        driver.enter(name)
    workers: list[dict[str, int | None]] = []
    for now_s in (1.0, 2.0):
        jobs = driver.plan(now_s)
        assert all(len(job.tasks) == 1 for job in jobs)
        workers.append(
            {name: job.worker for job in jobs for unit in job.units for name in unit.spans}
        )
        for name in names:
            for where in (A, B):
                driver.book.went(strand(name, where), Mark(int(now_s), int(now_s)))
        driver.book.see_ends({A: 2, B: 2})
    assert workers[0] == workers[1]
    assert len(workers[0]) == 12
    assert set(workers[0].values()) == {0, 1}


def test_who_follows_is_planned_without_news_and_without_an_end() -> None:
    driver = Driver({A: 0, B: 7})
    driver.enter(kind=JobKind.FOLLOWING)
    assert driver.spans() == {strand(): Span(0, None), strand("a", B): Span(0, None)}
    assert Unit(A, {"s/a": Span(0, None), "s/b": Span(4, 9)}).end is None
    driver.book.follow("s/a", is_following=False)
    for where in (A, B):
        driver.book.went(strand("a", where), Mark(7, 7))
    assert driver.spans(9.0) == {}


def test_who_follows_and_has_much_to_send_catches_up_first_and_reads_nothing_where_nothing_is() -> (
    None
):
    driver = Driver({A: 5_000, B: 0})
    driver.enter(kind=JobKind.FOLLOWING)
    (job,) = driver.plan()
    assert job.kind is JobKind.ALONE
    assert [unit.spans for unit in job.units] == [{"s/a": Span(0, 5_000)}]


def test_nothing_is_planned_for_whom_nothing_may_be_sent_to() -> None:
    driver = Driver({A: 5})
    driver.enter()
    lane = driver.lanes.pop("s/a")
    assert driver.plan() == []
    assert not driver.book.is_under_way(strand("a"))
    driver.lanes["s/a"] = lane
    assert driver.spans() == {strand(): Span(0, 5)}


def test_a_destination_that_lingers_waits_for_its_batch_to_fill_or_for_its_time() -> None:
    driver = Driver({A: 3})
    driver.enter(linger_s=2.0, batch_count_max=4)
    assert driver.plan(1.0) == []
    assert driver.plan(2.9) == []
    driver.book.see_ends({A: 4})
    assert driver.spans(2.9) == {strand(): Span(0, 4)}
    driver.book.went(strand(), Mark(4, 4))
    driver.book.see_ends({A: 5})
    # The wait starts when the waiting event arrives.
    assert driver.plan(10.0) == []
    assert driver.plan(11.9) == []
    assert driver.spans(12.0) == {strand(): Span(4, 5)}


def test_who_rests_is_planned_once_in_a_while() -> None:
    driver = Driver({A: 9})
    driver.enter(kind=JobKind.APART, rest_s=5.0, events_max=3)
    (span,) = driver.spans(100.0).values()
    driver.book.ended(strand(), span, 3)
    assert driver.plan(104.9) == []
    assert driver.spans(105.0) == {strand(): Span(3, 6)}


def test_a_rest_is_the_lanes_whatever_kafka_partition_has_something() -> None:
    driver = Driver({A: 9, B: 0})
    driver.enter(kind=JobKind.APART, rest_s=5.0)
    assert driver.spans(100.0) == {strand(): Span(0, 9)}
    driver.book.see_ends({B: 4})
    assert driver.plan(104.9) == []
    assert driver.spans(105.0) == {strand(where=B): Span(0, 4)}


def test_a_strand_is_free_by_its_mark_whatever_its_job_still_waits_for() -> None:
    driver = Driver({A: 5})
    driver.enter()
    (first,) = driver.spans().values()
    driver.book.see_ends({A: 8})
    assert driver.book.went(strand(), Mark(3, 5))
    assert driver.plan(9.0) == [], "the first span is not done yet"
    assert driver.book.went(strand(), Mark(5, 5))
    (second,) = driver.spans(10.0).values()
    assert second == Span(5, 8)
    # The final report of the strand's first job concerns the first span.
    assert not driver.book.is_with(strand(), first)
    driver.book.ended(strand(), first, 5)
    driver.book.cut(strand(), first, 0, not_before_s=0.0)
    assert driver.book.is_with(strand(), second)
    assert driver.plan(20.0) == [], "the span would be in two hands"
    assert driver.book.mark(strand()) == Mark(5, 8)


@pytest.mark.parametrize("mark", [Mark(3, 5), Mark(2, 5)])
def test_a_mark_that_says_nothing_new_changes_nothing(mark: Mark) -> None:
    driver = Driver({A: 5})
    driver.enter("a", Mark(3, 3))
    assert not driver.book.went(strand(), Mark(4, 5)), "nothing is under way"
    driver.spans()
    assert not driver.book.went(strand(), mark)
    assert not driver.book.went(strand("unknown"), Mark(4, 5))
    assert driver.book.position("s/a", [A, B]) == {A: 3}


def test_what_was_cut_goes_by_itself_and_says_that_it_may_be_a_repeat() -> None:
    driver = Driver({A: 5})
    driver.enter()
    (span,) = driver.spans().values()
    driver.book.see_ends({A: 9})
    driver.book.cut(strand(), span, 2, not_before_s=3.0)
    assert driver.book.mark(strand()) == Mark(2, 5)
    assert driver.plan(2.9) == []
    (again,) = driver.spans(3.0).values()
    assert again == Span(2, 5, 5)
    driver.book.ended(strand(), again, 5)
    (new,) = driver.spans(4.0).values()
    assert new == Span(5, 9)


def test_of_what_followed_its_log_all_is_in_doubt_that_there_is_at_the_next_look() -> None:
    """The worker may have been ahead of the driver's view of the log."""
    driver = Driver({A: 5})
    driver.enter(kind=JobKind.FOLLOWING)
    (span,) = driver.spans().values()
    assert driver.book.mark(strand()) == Mark(0, OPEN)
    driver.book.cut(strand(), span, 3, not_before_s=0.0)
    driver.turns.running.clear()
    assert driver.plan(1.0) == []
    assert driver.book.mark(strand()) == Mark(3, OPEN)
    driver.book.see_ends({B: 1})
    assert driver.plan(1.0) == []
    driver.book.see_ends({A: 8})
    (again,) = driver.spans(1.0).values()
    assert again == Span(3, 8, 8)
    driver.book.ended(strand(), again, 8)
    driver.turns.running.clear()
    assert driver.spans(2.0) == {strand(): Span(8, None)}


def test_what_was_cut_while_it_followed_its_log_is_in_doubt_until_its_worker_is_done() -> None:
    """The worker may still be alive and sending new events."""
    driver = Driver({A: 5})
    driver.enter(kind=JobKind.FOLLOWING)
    (job,) = driver.plan()
    driver.book.cut(strand(), job.units[0].spans["s/a"], 3, not_before_s=2.0)
    driver.turns.end(job)
    driver.book.see_ends({A: 6}, as_of_s=1.9)
    assert driver.book.mark(strand()) == Mark(3, OPEN)
    assert driver.plan(2.1) == [], "more events may have been sent since"
    driver.book.see_ends({A: 8}, as_of_s=2.0)
    assert driver.spans(2.1) == {strand(): Span(3, 8, 8)}


@pytest.mark.parametrize(
    ("mark", "span"),
    [
        (Mark(4, 4), Span(4, 9)),
        (Mark(4, 6), Span(4, 6, 6)),
        (Mark(4, OPEN), Span(4, 9, 9)),
    ],
)
def test_it_goes_on_where_its_mark_says(mark: Mark, span: Span) -> None:
    driver = Driver({A: 9})
    driver.enter("a", mark)
    assert strand() in driver.book
    assert driver.spans() == {strand(): span}


def test_who_has_left_is_forgotten_and_may_come_back() -> None:
    driver = Driver({A: 5})
    driver.enter(kind=JobKind.FOLLOWING)
    (span,) = driver.spans().values()
    driver.book.cut(strand(), span, 0, not_before_s=0.0)
    driver.book.leave("s/a")
    driver.book.leave("s/a")
    assert strand() not in driver.book
    assert driver.book.strands("s/a") == []
    driver.book.see_ends({A: 6})
    driver.book.ended(strand(), span, 5)
    driver.book.cut(strand(), span, 5, not_before_s=0.0)
    assert driver.plan() == []
    driver.enter("a", Mark(5, 5))
    assert driver.book.strands("s/a") == [strand()]
    assert driver.spans() == {strand(): Span(5, 6)}


def test_an_end_that_is_known_already_changes_nothing() -> None:
    driver = Driver({A: 9})
    driver.enter("a", Mark(9, 9))
    driver.book.see_ends({A: 9})
    assert driver.plan() == []
    driver.book.see_ends({A: 10})
    assert driver.spans() == {strand(): Span(9, 10)}


def test_of_a_lane_the_strand_is_told_that_waits_longest() -> None:
    """A person must hear of a strand that hangs while the others of its lane make progress."""
    driver = Driver({A: 5, B: 5, C: 0})
    driver.enter()
    assert driver.book.laggard("s/a") is None
    spans = driver.spans(10.0)
    for end in (6, 7, 8):
        span = spans[strand("a", B)]
        driver.book.went(strand("a", B), Mark(end - 1, end - 1))
        driver.book.see_ends({B: end})
        spans = driver.spans(10.0 * end)
        assert span is not spans[strand("a", B)]
        assert driver.book.laggard("s/a") == Laggard(strand(), 10.0, is_sending=True)
    driver.book.cut(strand(), Span(0, 5), 0, not_before_s=0.0)
    assert driver.book.laggard("s/a") == Laggard(strand(), 10.0, is_sending=True), "another's word"


def test_who_is_heard_of_by_reports_alone_goes_on_as_well() -> None:
    """The marks may arrive after the reports, and then they say nothing new."""
    driver = Driver({A: 2})
    driver.enter()
    for end in range(3, 6):
        ((at, span),) = driver.spans(100.0 * end).items()
        driver.book.see_ends({A: end})
        driver.book.ended(at, span, end - 1)
        assert driver.book.laggard("s/a") is None
    driver.plan(1_000.0)
    assert driver.book.laggard("s/a") == Laggard(strand(), 1_000.0, is_sending=True)


def test_what_has_nothing_left_to_send_has_not_stood_still() -> None:
    """A real-time strand is under way all the time."""
    driver = Driver({A: 5})
    driver.enter(kind=JobKind.FOLLOWING)
    driver.plan(1.0)
    assert driver.book.laggard("s/a") == Laggard(strand(), 1.0, is_sending=True)
    driver.book.went(strand(), Mark(5, OPEN))
    driver.plan(2.0)
    assert driver.book.laggard("s/a") is None
    driver.book.see_ends({A: 6})
    driver.plan(3.0)
    assert driver.book.laggard("s/a") == Laggard(strand(), 3.0, is_sending=True)
