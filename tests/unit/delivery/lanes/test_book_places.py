"""With few places, a book orders waiting strands, and gives hanging ones jobs of their own."""

from dataclasses import replace

from delivery.lanes.marks import Mark
from delivery.lanes.turns import Turns
from delivery.lanes.units import PATIENCE_S, JobKind, Span, Unit
from tests.unit.delivery.lanes.test_book import A, B, C, Driver, strand


def test_of_those_with_much_to_send_who_waits_longest_comes_first() -> None:
    driver = Driver({A: 5_000, B: 0, C: 0}, turns=Turns(places=1))
    for name in ("first", "hurried"):
        driver.enter(name)
    (first, hurried) = driver.plan()
    assert (first.is_hurried, hurried.is_hurried) == (False, True)
    driver.enter("late")
    assert driver.plan(1.0) == [], "too many jobs are already running"
    driver.enter("later")
    driver.turns.end(first)
    (job,) = driver.plan(2.0)
    assert list(job.units[0].spans) == ["s/late"]
    driver.turns.end(job)
    (job,) = driver.plan(3.0)
    assert list(job.units[0].spans) == ["s/later"]


def test_of_those_with_much_to_send_whose_tenant_has_less_comes_first() -> None:
    driver = Driver({A: 5_000}, turns=Turns(places=3))
    for name in ("a1", "a2", "a3", "b1"):
        driver.enter(name)
        tenant = name[0]
        driver.lanes[f"s/{name}"] = replace(driver.lanes[f"s/{name}"], tenant=tenant)
        if name == "a2":
            assert len(driver.plan()) == 2
    (job,) = [job for job in driver.plan(1.0) if not job.is_hurried]
    assert list(job.units[0].spans) == ["s/b1"]


def test_who_hangs_is_sent_to_apart_until_it_is_heard_of() -> None:
    driver = Driver({A: 1, B: 0})
    driver.enter()
    driver.enter("b", kind=JobKind.FOLLOWING)
    jobs = driver.plan()
    assert {job.kind for job in jobs} == {JobKind.SHARED, JobKind.FOLLOWING}
    driver.book.see_ends({B: 1})
    (job,) = driver.plan(PATIENCE_S + 0.1)
    assert (job.kind, job.units) == (JobKind.APART, [Unit(B, {"s/a": Span(0, 1)})])
    driver.book.went(strand(where=B), Mark(1, 1))
    driver.book.went(strand(), Mark(1, 1))
    driver.book.see_ends({B: 2})
    (job,) = driver.plan(2 * PATIENCE_S)
    assert job.kind is JobKind.SHARED


def test_who_leaves_while_it_hangs_has_its_slot_until_the_job_ends() -> None:
    """Otherwise a tenant would gain a place each time it pauses and resumes."""
    driver = Driver({A: 1}, turns=Turns(places=2))
    driver.enter(kind=JobKind.APART)
    (job,) = driver.plan()
    driver.book.leave("s/a")
    driver.enter(kind=JobKind.APART)
    driver.book.went(strand(), Mark(1, 1))
    assert driver.turns.lent_to(now_s=1.0) == {"": 1}
    assert driver.plan(1.0) == []
    driver.turns.end(job)
    assert len(driver.plan(2.0)) == 1
