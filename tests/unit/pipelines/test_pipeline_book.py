"""Pipelines that share a job or run alone, and the search for events that nothing can process."""

import random

import pytest

from pipelines.lanes.book import PORTIONS_MAX, SHARED_EVENTS_MAX, SHARED_JOBS_MAX, PipelineBook
from pipelines.lanes.gathering import Gathering
from pipelines.lanes.portions import PlannedJob
from shared.event.record import KafkaPartition
from shared.runtime.kafka.leases.fenced_positions import Reach

PLACES = [KafkaPartition("hifi.stream.s", number) for number in range(2)]
FAR = 10 * SHARED_EVENTS_MAX
BOX_S = 5.0


def book_of(*lanes: str, own_jobs_max: int = 4, at: int = 0, until: int = 0) -> PipelineBook:
    book = PipelineBook(events_max=1_000_000, time_box_s=BOX_S, own_jobs_max=own_jobs_max)
    for lane in lanes:
        tenant, _, _ = lane.partition(".")
        book.enter(lane, tenant, {where: Reach(at, max(at, until)) for where in PLACES})
        # The lanes have shown that they work.
        book.lanes[lane].is_apart = False
    return book


def test_a_new_one_waits_for_its_turn_as_others_do() -> None:
    book = book_of("t.large", "t.waits", own_jobs_max=1)
    have(book, 1_000_000)
    for now_s, who_begins in [(0.0, "t.large"), (1.0, "t.waits"), (2.0, "t.large")]:
        (job,) = book.plan(now_s)
        assert who([job]) == [[who_begins]]
        book.over(job)
    for nth in range(3):
        book.enter(f"t.new-{nth}", "t", dict.fromkeys(PLACES, Reach(0, 0)))
    assert who(book.plan(3.0)) == [["t.waits"]]


def test_a_new_one_has_a_job_of_its_own_until_it_has_shown_that_it_is_well() -> None:
    book = book_of("t.old", "t.other")
    book.enter("t.new", "t", {where: Reach(0, 0) for where in PLACES})
    have(book, 10)
    shared, own = book.plan(0.0)
    assert who([shared, own]) == [["t.old", "t.other"], ["t.new"]]
    end_well(book, own)
    end_well(book, shared)
    have(book, 20)
    assert sorted(who(book.plan(1.0))[0]) == ["t.new", "t.old", "t.other"]


def have(book: PipelineBook, end: int) -> None:
    assert book.see_ends(dict.fromkeys(PLACES, end)) == []


def who(jobs: list[PlannedJob]) -> list[list[str]]:
    return [[portion.lane_id for portion in job.portions] for job in jobs]


def end_well(
    book: PipelineBook, job: PlannedJob, *, took_s: float = 0.1, now_s: float = 1.0
) -> None:
    book.done(job, took_s, now_s=now_s)
    book.over(job)


def test_who_is_well_shares_a_job_and_nobody_is_in_two() -> None:
    book = book_of("t.a", "t.b", "u.c")
    have(book, 10)
    (job,) = book.plan(0.0)
    assert who([job]) == [["t.a", "t.b", "u.c"]]
    assert job.is_shared
    have(book, 20)
    assert book.plan(0.0) == []
    end_well(book, job)
    (job,) = book.plan(0.0)
    assert job.portions[0].ranges == dict.fromkeys(PLACES, (10, 20))


def test_a_job_is_shared_by_so_many_and_there_are_so_many_shared_jobs() -> None:
    lanes = [f"t.{number}" for number in range(PORTIONS_MAX * SHARED_JOBS_MAX + 3)]
    book = book_of(*lanes)
    have(book, 10)
    jobs = book.plan(0.0)
    assert [len(job.portions) for job in jobs] == [PORTIONS_MAX] * SHARED_JOBS_MAX
    for job in jobs:
        end_well(book, job)
    assert who(book.plan(1.0)) == [lanes[-3:]], "the longest wait comes first"


def test_who_is_far_behind_goes_alone_with_more_at_a_time() -> None:
    book = book_of("t.near")
    book.enter("t.far", "t", {PLACES[0]: Reach(0, 0)})
    book.lanes["t.far"].is_apart = False
    book.lanes["t.near"].reaches = dict.fromkeys(PLACES, Reach(FAR - 5, FAR - 5))
    have(book, FAR)
    shared, own = book.plan(0.0)
    assert (who([shared]), shared.is_shared) == ([["t.near"]], True)
    assert (who([own]), own.is_shared) == ([["t.far"]], False)
    assert own.portions[0].ranges == {PLACES[0]: (0, FAR)}


def test_jobs_of_ones_own_are_counted_and_a_tenants_second_comes_after_each_others_first() -> None:
    book = book_of("t.a", "t.b", "t.c", "u.d", own_jobs_max=2)
    have(book, FAR)
    jobs = book.plan(0.0)
    assert who(jobs) == [["t.a"], ["u.d"]]
    end_well(book, jobs[1])
    have(book, 2 * FAR)
    assert who(book.plan(1.0)) == [["u.d"]], "the other tenant has a job already"


def test_what_may_have_been_written_is_a_repeat_and_nothing_else_is() -> None:
    book = book_of("t.a", at=5, until=8)
    have(book, 20)
    (job,) = book.plan(0.0)
    assert job.portions[0].repeats == dict.fromkeys(PLACES, 8)
    # The event was written without confirmation: all of the range is a repeat.
    book.held_up(job, now_s=0.0)
    book.over(job)
    (again,) = book.plan(0.0)
    assert again.portions[0].repeats == dict.fromkeys(PLACES, 20)
    end_well(book, again)
    have(book, 30)
    assert book.plan(1.0)[0].portions[0].repeats == {}


def test_who_is_held_up_waits_longer_each_time_and_holds_up_nobody() -> None:
    book = book_of("t.a", "t.b")
    have(book, 10)
    waits = []
    now_s = 0.0
    for _ in range(8):
        (job,) = book.plan(now_s, leaving=["t.b"])
        waits.append(book.held_up(job, now_s))
        book.over(job)
        if waits[-1]:
            assert book.plan(now_s + waits[-1] - 0.1, leaving=["t.b"]) == []
        now_s += waits[-1]
    assert waits == [0, 1, 3, 7, 15, 30, 30, 30]
    assert who(book.plan(now_s - 1)) == [["t.b"]]


def test_a_shared_job_that_fails_is_done_again_by_each_alone_and_who_is_well_comes_back() -> None:
    book = book_of("t.bad", "t.good")
    have(book, 10)
    (job,) = book.plan(0.0)
    book.failed(job)
    book.over(job)
    bad, good = book.plan(0.0)
    assert who([bad, good]) == [["t.bad"], ["t.good"]]
    book.failed(bad)
    book.over(bad)
    end_well(book, good)
    have(book, 20)
    jobs = book.plan(1.0)
    assert sorted(
        (names, job.is_shared) for job, (names,) in zip(jobs, who(jobs), strict=True)
    ) == [
        ("t.bad", False),
        ("t.good", True),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_events_cannot_be_worked_on_each_is_found_alone_and_no_other_is_given_up(
    seed: int,
) -> None:
    dice = random.Random(seed)
    end = dice.randint(1, 3_000)
    poison = {(dice.choice(PLACES), dice.randrange(end)) for _ in range(dice.randint(0, 5))}
    book = book_of("t.a")
    have(book, end)
    given_up: set[tuple[KafkaPartition, int]] = set()
    done: set[tuple[KafkaPartition, int]] = set()
    for _ in range(2_000):
        jobs = book.plan(0.0)
        if not jobs:
            break
        (job,) = jobs
        (portion,) = job.portions
        events = {(it, n) for it, (low, high) in portion.ranges.items() for n in range(low, high)}
        assert not events & (done | given_up), "an event is processed twice"
        if not events & poison:
            done |= events
            book.done(job, 0.1, now_s=0.0)
        elif portion.is_one_event:
            given_up |= events
            book.done(job, 0.1, now_s=0.0)
        else:
            book.failed(job)
        book.over(job)
    assert given_up == poison
    assert len(done) + len(given_up) == len(PLACES) * end
    assert not book.lanes["t.a"].is_apart


def test_who_is_slow_goes_alone_with_less_until_it_is_quick() -> None:
    book = book_of("t.slow", "t.other")
    have(book, 10)
    (job,) = book.plan(0.0)
    end_well(book, job, took_s=2 * BOX_S)
    have(book, FAR)
    jobs = book.plan(1.0)
    assert who(jobs) == [["t.slow"], ["t.other"]]
    most = book.lanes["t.slow"].events_max
    for job in jobs:
        end_well(book, job, took_s=2 * BOX_S)
    assert book.lanes["t.slow"].events_max == most // 2
    have(book, FAR + 5)
    slow, other = book.plan(2.0)
    end_well(book, slow, took_s=BOX_S * 0.8)
    end_well(book, other)
    assert (book.lanes["t.slow"].is_apart, book.lanes["t.other"].is_apart) == (True, False)


def test_who_leaves_is_not_planned_and_its_job_changes_nothing_any_more() -> None:
    book = book_of("t.a", "t.b")
    have(book, 10)
    (job,) = book.plan(0.0)
    book.leave("t.a")
    end_well(book, job)
    have(book, 20)
    assert who(book.plan(1.0)) == [["t.b"]]


def test_a_job_of_an_earlier_life_says_nothing_of_who_has_come_back() -> None:
    book = book_of("t.a")
    have(book, 10)
    (job,) = book.plan(0.0)
    book.leave("t.a")
    book.enter("t.a", "t", {where: Reach(30, 30) for where in PLACES})
    assert not book.is_ours(job.portions[0])
    end_well(book, job)
    assert {reach.at for reach in book.lanes["t.a"].reaches.values()} == {30}


def test_nothing_is_planned_for_who_is_about_to_leave() -> None:
    book = book_of("t.a", "t.b")
    have(book, 10)
    assert who(book.plan(0.0, leaving=["t.a"])) == [["t.b"]]


def test_a_log_that_has_lost_its_end_is_told_and_gone_on_with() -> None:
    book = book_of("t.a", at=50, until=60)
    lost = book.see_ends(dict.fromkeys(PLACES, 20))
    assert lost == [("t.a", where) for where in PLACES]
    for lane, where in lost:
        book.move(lane, where, 20)
    have(book, 25)
    (job,) = book.plan(0.0)
    assert job.portions[0].ranges == dict.fromkeys(PLACES, (20, 25))
    assert job.portions[0].repeats == {}


def sink_book(*lanes: str, sink_jobs_max: int = 4, at: int = 0, until: int = 0) -> PipelineBook:
    book = book_of()
    book.sink_jobs_max = sink_jobs_max
    for lane in lanes:
        reaches = {where: Reach(at, max(at, until)) for where in PLACES}
        book.enter(lane, lane.partition(".")[0], reaches, GATHERED)
    return book


GATHERED = Gathering(linger_s=60, events_max=100, time_box_s=30)


def test_what_goes_to_a_sink_waits_for_more_by_time_and_by_number_and_never_shares_a_job() -> None:
    book = sink_book("t.a", "t.b")
    have(book, 10)
    assert book.plan(0.0) == []
    assert book.plan(59.0) == []
    first, second = book.plan(60.0)
    assert who([first, second]) == [["t.a"], ["t.b"]]
    assert first.is_elsewhere
    assert first.portions[0].ranges == dict.fromkeys(PLACES, (0, 10))
    end_well(book, first)
    have(book, 250)
    (full,) = book.plan(61.0)
    assert full.portions[0].ranges == dict.fromkeys(PLACES, (10, 110))


def test_a_range_that_a_sink_may_have_is_done_again_as_it_was_and_nothing_beyond() -> None:
    book = sink_book("t.a", at=5, until=8)
    have(book, 1_000)
    (job,) = book.plan(0.0)
    (portion,) = job.portions
    assert portion.ranges == dict.fromkeys(PLACES, (5, 8))
    assert [portion.until(where) for where in PLACES] == [8, 8]
    assert portion.repeats == dict.fromkeys(PLACES, 8)
    book.held_up(job, 0.0)
    book.over(job)
    (again,) = book.plan(0.0)
    assert again.portions[0].ranges == portion.ranges
    end_well(book, again)
    (further,) = book.plan(0.0)
    assert further.portions[0].ranges == dict.fromkeys(PLACES, (8, 108))
    assert further.portions[0].repeats == {}


def test_of_several_ranges_that_fail_each_is_tried_as_it_was_before_one_is_cut() -> None:
    book = sink_book("t.a")
    have(book, 100)
    (job,) = book.plan(0.0)
    tried = []
    for _ in range(3):
        book.failed(job)
        book.over(job)
        (job,) = book.plan(0.0)
        tried.append(job.portions[0].ranges)
    assert tried == [{PLACES[0]: (0, 100)}, {PLACES[0]: (0, 50)}, {PLACES[0]: (0, 25)}]
    assert job.portions[0].until(PLACES[0]) == 25


def test_sinks_that_are_away_leave_half_of_the_places_to_others() -> None:
    book = sink_book(*(f"t.{number}" for number in range(6)), sink_jobs_max=4)
    have(book, 200)
    jobs = book.plan(0.0)
    assert len(jobs) == 4
    for job in jobs:
        book.held_up(job, 0.0)
        book.over(job)
    never_failed = {"t.4", "t.5"}
    later = {lane for lanes in who(book.plan(0.0)) for lane in lanes}
    assert never_failed <= later
    assert len(later) == 4, "two places are left for pipelines that failed"
    assert book.plan(0.0) == []


def test_who_has_a_rate_gets_a_second_of_it_and_rests_until_it_is_over() -> None:
    book = PipelineBook(events_max=1_000_000, time_box_s=BOX_S, own_jobs_max=4)
    slow = Gathering(linger_s=0, events_max=10_000, time_box_s=BOX_S, rate_per_s=50.5)
    book.enter("t.slow", "t", {PLACES[0]: Reach(0, 0)}, slow)
    slower = Gathering(linger_s=0, events_max=10_000, time_box_s=BOX_S, rate_per_s=0.1)
    book.enter("t.slower", "t", {PLACES[1]: Reach(0, 0)}, slower)
    have(book, 10_000)
    jobs = book.plan(1.0)
    assert [job.portions[0].ranges for job in jobs] == [{PLACES[0]: (0, 50)}, {PLACES[1]: (0, 1)}]
    for job in jobs:
        end_well(book, job)
    assert book.plan(1.98) == []
    (job,) = book.plan(2.0)
    assert job.portions[0].ranges == {PLACES[0]: (50, 100)}
    end_well(book, job)
    assert who(book.plan(11.1)) == [["t.slower"], ["t.slow"]]


def test_what_is_to_replace_another_reads_no_farther_than_that_has() -> None:
    book = book_of("t.next")
    have(book, 100)
    lane = book.lanes["t.next"]
    lane.limits = {PLACES[0]: 30}
    (job,) = book.plan(0.0)
    assert job.portions[0].ranges == {PLACES[0]: (0, 30)}
    end_well(book, job)
    assert book.plan(1.0) == []
    lane.limits = None
    (job,) = book.plan(2.0)
    assert job.portions[0].ranges == {PLACES[0]: (30, 100), PLACES[1]: (0, 100)}


def test_what_keeps_something_shares_a_job_with_nobody() -> None:
    book = book_of("t.a", "t.b")
    book.lanes["t.a"].keeps = 1_000
    have(book, 10)
    assert who(book.plan(0.0)) == [["t.b"], ["t.a"]]
