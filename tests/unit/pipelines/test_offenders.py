"""Suspects of an executor's end are tried alone; a repeat offender is found in a few tries."""

from dataclasses import replace

from pipelines.lanes.book import PipelineBook
from pipelines.lanes.portions import PipelinePortion, PlannedJob
from tests.unit.pipelines.test_pipeline_book import (
    PLACES,
    book_of,
    end_well,
    have,
    sink_book,
    who,
)


def test_who_was_at_work_when_an_executor_ended_is_tried_alone() -> None:
    book = book_of("t.bad", "t.good")
    have(book, 1_000)
    (job,) = book.plan(0.0)
    assert not book.is_suspect(job)
    book.suspect(job, 0.0)
    book.over(job)
    bad, good = book.plan(0.0)
    assert who([bad, good]) == [["t.bad"], ["t.good"]]
    assert all(book.is_suspect(each) for each in (bad, good))
    assert [each.portions[0].ranges for each in (bad, good)] == [
        dict.fromkeys(PLACES, (0, 1_000))
    ] * 2
    end_well(book, good)
    # A successful job clears one of the suspects.
    assert not book.lanes["t.good"].is_suspect


def test_what_was_at_work_for_a_moment_is_tried_first_and_others_go_on_before_the_rest() -> None:
    book = book_of("t.bad", "t.good")
    for lane in book.lanes.values():
        lane.is_apart = True
    have(book, 1_000)
    (bad,) = book.plan(0.0, ["t.good"])
    (good,) = book.plan(5.9)
    for job in (bad, good):
        book.suspect(job, 6.0)
        book.over(job)
    assert book.plan(6.1) == []
    (again,) = book.plan(6.3)
    assert who([again]) == [["t.good"]]
    # Another executor has started meanwhile: from now on others work while the offender rests.
    end_well(book, again, now_s=17.0)
    assert book.plan(28.9, ["t.good"]) == []
    assert who(book.plan(29.1, ["t.good"])) == [["t.bad"]]


def test_what_ended_an_executor_alone_rests_from_when_another_one_works() -> None:
    book = book_of("t.bad", "u.good")
    have(book, 1_000)
    assert ends(book, "t.bad", 0.0) == 10.0
    (good,) = book.plan(0.0)
    end_well(book, good, now_s=12.0)
    assert book.lanes["t.bad"].not_before_s == 22.0
    # Later jobs do not extend the rest.
    have(book, 2_000)
    (again,) = book.plan(13.0)
    assert who([again]) == [["u.good"]]
    end_well(book, again, now_s=14.0)
    assert book.lanes["t.bad"].not_before_s == 22.0


def test_rests_begin_with_a_job_that_a_new_executor_has_done() -> None:
    book = book_of("t.bad", "u.good")
    have(book, 1)
    assert ends(book, "t.bad", 0.0) == 10.0
    bad, good = (
        PlannedJob((PipelinePortion(it.id, {}, it.life),), is_shared=False)
        for it in book.lanes.values()
    )
    # Neither giving up the event that ended an executor nor closing a window needs an executor.
    book.done(bad, 5.0, 5.0, is_well=False)
    book.done(replace(good, is_quick=True), 0.1, 6.0)
    assert book.lanes["t.bad"].not_before_s == 10.0
    book.done(good, 0.1, 12.0)
    assert book.lanes["t.bad"].not_before_s == 22.0


def found_at(poison: int, book: PipelineBook, *, bad: int | None = None) -> list[float]:
    """Work on 1,000 events, one of which ends executors, while `bad` fails; return the waits."""
    have(book, 1_000)
    (job,) = book.plan(0.0)
    book.suspect(job, 0.0)
    book.over(job)
    now_s, waits_s, done = 0.0, list[float](), 0
    while book.lanes["t.bad"].is_suspect:
        if (again_s := book.lanes["t.bad"].not_before_s) > now_s:
            assert book.plan(again_s - 0.1) == []
            now_s = again_s
        (job,) = book.plan(now_s)
        assert book.is_suspect(job)
        begin, end = job.portions[0].ranges.get(PLACES[1], (0, 0))
        is_last, has_poison = job.portions[0].is_one_event, begin <= poison < end
        if has_poison and not is_last:
            book.offended(job, now_s)
            book.failed(job)
            waits_s.append(book.lanes["t.bad"].not_before_s - now_s)
        elif bad is not None and begin <= bad < end and not is_last:
            book.failed(job)
        else:
            if has_poison:
                # The event that is left is a dead letter.
                book.offended(job, now_s)
            book.done(job, 0.1, now_s, is_well=not has_poison)
            done += 1
        book.over(job)
        if book.lanes["t.bad"].position[PLACES[1]] >= 1_000:
            have(book, 1_000 + done)
    assert done < 60
    # Once past that event, the pipeline runs alone for as many jobs as it has offences.
    assert book.lanes["t.bad"].position[PLACES[1]] > poison
    return waits_s


def test_the_event_that_ends_executors_is_found_in_few_tries_of_which_each_costs_one() -> None:
    assert found_at(777, book_of("t.bad")) == [10.0, 20.0, 40.0]


def test_an_event_that_merely_fails_does_not_end_the_search_for_who_ends_executors() -> None:
    book = book_of("t.bad")
    assert found_at(777, book, bad=130) == [10.0, 20.0, 40.0]


def test_what_a_sink_has_begun_with_is_not_cut_for_a_suspicion() -> None:
    book = sink_book("t.a")
    have(book, 200)
    (job,) = book.plan(0.0)
    book.suspect(job, 0.0)
    book.over(job)
    (again,) = book.plan(0.0)
    assert again.portions[0].ranges == job.portions[0].ranges
    assert book.is_suspect(again)


def ends(book: PipelineBook, lane_id: str, now_s: float) -> float:
    """End an executor with a lane that runs alone; return how long it rests."""
    lane = book.lanes[lane_id]
    lane.is_suspect, lane.not_before_s = True, now_s
    others = [each for each in book.lanes if each != lane_id]
    (job,) = book.plan(now_s, others)
    book.offended(job, now_s)
    book.over(job)
    return lane.not_before_s - now_s


def test_a_tenant_rests_longer_after_each_executor_that_it_ends_within_an_hour() -> None:
    book = book_of("t.bad", "t.worse", "other.bad")
    have(book, 1_000)
    times_s = [0.0, 100.0, 200.0, 300.0, 500.0, 800.0, 1_400.0, 2_100.0]
    whose = ["t.bad", "t.worse"] * 4
    rests_s = [ends(book, who, at_s) for who, at_s in zip(whose, times_s, strict=True)]
    assert rests_s == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    assert ends(book, "other.bad", 2_100.0) == 10.0
    # Only offences of the last hour count: six are older.
    assert ends(book, "t.bad", 4_500.0) == 40.0


def test_all_suspects_of_a_tenant_rest_after_one_has_ended_an_executor() -> None:
    book = book_of("t.bad", "t.suspect", "t.good")
    have(book, 1_000)
    book.lanes["t.suspect"].is_suspect = True
    ends(book, "t.bad", 0.0)
    assert who(book.plan(9.9)) == [["t.good"]]
    assert who(book.plan(10.1)) == [["t.suspect"], ["t.bad"]]


def test_where_three_pipelines_of_a_tenant_have_done_it_all_of_them_are_suspects() -> None:
    book = book_of("t.a", "t.b", "t.c", "t.good")
    have(book, 1_000)
    for nth, lane_id in enumerate(["t.a", "t.b", "t.c"]):
        assert not book.lanes["t.good"].is_suspect
        ends(book, lane_id, 100.0 * nth)
    good = book.lanes["t.good"]
    assert good.is_suspect
    assert good.not_before_s == 240.0
    (job,) = book.plan(240.0, ["t.a", "t.b", "t.c"])
    end_well(book, job, now_s=241.0)
    assert good.is_suspect
    have(book, 2_000)
    (job,) = book.plan(3_900.0, ["t.a", "t.b", "t.c"])
    end_well(book, job, now_s=3_900.0)
    assert not good.is_suspect
