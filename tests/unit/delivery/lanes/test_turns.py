"""When the next job may start, and which places it has (ADR 0062)."""

from dataclasses import replace

import pytest

from delivery.lanes.turns import Grant, Turn, Turns
from delivery.lanes.units import PATIENCE_S, Job, JobKind, Span, Strand, TaskEnd, Unit
from shared.event.record import KafkaPartition
from shared.runtime.spark.processor_time import ProcessorTime

FOLLOW_S, TIME_BOX_S = 3.0, 7.0


def turns(places: int = 10) -> Turns:
    return Turns(places, FOLLOW_S, TIME_BOX_S)


def strand(tenant: str, number: int = 0) -> Strand:
    return Strand(f"{tenant}/d", KafkaPartition("hifi.stream.s", number))


def started(
    of: Turns,
    kind: JobKind,
    *tasks: str,
    now_s: float = 0.0,
    worker: int | None = None,
    is_hurried: bool = False,
) -> Turn:
    """Start a job of these tasks, each with a strand of each of the tenants that it names."""
    units = [
        [Unit(strand(name, number).where, {f"{name}/d": Span(0, 1)}) for name in names.split()]
        for number, names in enumerate(tasks)
    ]
    tenants = {f"{name}/d": name for names in tasks for name in names.split()}
    follow_s = of.follows_s(now_s=now_s) if kind is JobKind.FOLLOWING else 0.0
    return of.start(Job(kind, units, worker, is_hurried, follow_s), tenants, now_s=now_s)


def granted(
    of: Turns, kind: JobKind, *tenants: str, now_s: float = 0.0, worker: int | None = None
) -> list[Grant]:
    return list(of.grants(kind, worker, set(tenants), now_s=now_s))


def wait_s(kind: JobKind, strand_count: int, *, running: int = 0, since_s: float = 0.0) -> float:
    """Return how long the next job waits, to the millisecond."""
    waits = turns()
    for _ in range(running):
        started(waits, kind, "a", now_s=since_s)
    waits.pause(kind, {"a": strand_count}, now_s=0.0)
    return next(ms for ms in range(10_000) if waits.may_start(kind, "a", now_s=ms / 1_000)) / 1_000


@pytest.mark.parametrize(
    ("strand_count", "expected_s"), [(1, 0.032), (10, 0.06), (40, 0.27), (52, 0.4), (5_000, 0.4)]
)
def test_the_more_there_is_to_do_the_more_of_it_shares_a_job(
    strand_count: int, expected_s: float
) -> None:
    assert wait_s(JobKind.SHARED, strand_count) == pytest.approx(expected_s, abs=0.002)
    apart_s = max(0.25, expected_s)
    assert wait_s(JobKind.APART, strand_count) == pytest.approx(apart_s, abs=0.002)
    assert wait_s(JobKind.ALONE, strand_count) == 0.0, "the job shares with nobody"


def test_nobody_waits_for_the_crowd_of_another_tenant() -> None:
    of = turns(100)
    of.pause(JobKind.SHARED, {"a": 728, "b": 4}, now_s=0.0)
    for tenant in ("b", "c"):
        assert not of.may_start(JobKind.SHARED, tenant, now_s=0.06)
        assert of.may_start(JobKind.SHARED, tenant, now_s=0.07)
    assert not of.may_start(JobKind.SHARED, "a", now_s=0.39)
    of.pause(JobKind.SHARED, {"b": 4}, now_s=0.07)
    assert not of.may_start(JobKind.SHARED, "a", now_s=0.39), "it waits for its own tenant's jobs"
    assert of.may_start(JobKind.SHARED, "a", now_s=0.41)
    # Many tenants wait for each other, as a job for each would cost more than their events.
    many = turns(100)
    many.pause(JobKind.SHARED, {f"t{nth}": 3 for nth in range(100)}, now_s=0.0)
    assert not many.may_start(JobKind.SHARED, "c", now_s=0.39)


def test_each_job_that_still_waits_makes_the_next_one_wait_longer_unless_somebody_hangs() -> None:
    assert wait_s(JobKind.SHARED, 1, running=3) == pytest.approx(0.182, abs=0.002)
    assert wait_s(JobKind.SHARED, 1, running=3, since_s=-2.1) == pytest.approx(0.032, abs=0.002)
    assert wait_s(JobKind.APART, 1, running=4) == pytest.approx(0.25, abs=0.002)


@pytest.mark.parametrize(
    ("kind", "count", "held_s"),
    [(JobKind.SHARED, 4, PATIENCE_S), (JobKind.FOLLOWING, 10, FOLLOW_S + PATIENCE_S)],
)
def test_there_are_never_too_many_but_who_hangs_is_none_of_them(
    kind: JobKind, count: int, held_s: float
) -> None:
    """The limit is two at once for each of two workers, or five that follow their logs."""
    of = turns(100)
    for _ in range(count):
        assert of.may_start(kind, "a", now_s=0.0)
        first = started(of, kind, "a")
    assert not of.may_start(kind, "a", now_s=held_s)
    assert all(of.may_start(each, "a", now_s=0.0) for each in set(JobKind) - {kind})
    assert of.may_start(kind, "a", now_s=held_s + 0.1)
    of.end(first.job)
    assert of.may_start(kind, "a", now_s=0.0)


def test_who_does_not_answer_takes_no_other_tenants_jobs() -> None:
    of = turns(100)
    for _ in range(4):
        started(of, JobKind.SHARED, "a")
    assert not of.may_start(JobKind.SHARED, "a", now_s=0.1)
    assert of.may_start(JobKind.SHARED, "b", now_s=0.1)
    mixed = [started(of, JobKind.SHARED, "a b") for _ in range(4)]
    assert not of.may_start(JobKind.SHARED, "b", now_s=0.1)
    assert not of.may_start(JobKind.SHARED, "c", now_s=0.1)
    # One strand is almost done: only the other tenant's is waited for.
    mixed[0].done(strand("b"))
    assert of.may_start(JobKind.SHARED, "b", now_s=0.1)
    assert not of.may_start(JobKind.SHARED, "a", now_s=2.0)


def test_those_in_real_time_end_together_and_go_on_together() -> None:
    """Otherwise a strand that once started by itself would have a process of its own forever."""
    of = replace(turns(), follow_s=2.0)
    assert [of.follows_s(now_s=now_s) for now_s in (10.0, 10.5, 11.4, 11.6, 11.9)] == (
        pytest.approx([2.0, 1.5, 0.6, 2.4, 2.1])
    )
    assert of.follows_s_max == 2.7
    late = started(of, JobKind.FOLLOWING, "a", worker=0, now_s=10.5)
    assert [of.is_joined_soon(0, now_s=now_s) for now_s in (11.7, 11.9, 12.1, 12.3)] == [
        *(False, True),
        *(True, False),
    ]
    assert not of.is_joined_soon(1, now_s=12.0)
    of.end(late.job)
    assert not of.is_joined_soon(0, now_s=12.0)


def test_who_follows_alone_is_asked_before_its_end_whether_it_may_go_on_a_few_times() -> None:
    of = replace(turns(), follow_s=2.0)
    turn = started(of, JobKind.FOLLOWING, "a b", worker=0, now_s=10.0)
    started(of, JobKind.SHARED, "a", worker=0, now_s=10.0)
    assert [of.due(now_s=now_s) for now_s in (11.2, 11.4, 11.7, 11.9)] == [[], [turn], [turn], []]
    for follow_s in (4.0, 6.0, 8.0, 10.0):
        assert of.due(now_s=8.0 + follow_s - 0.5) == [turn]
        assert of.prolong(turn) == follow_s
        assert not of.due(now_s=8.0 + follow_s - 0.5)
    assert not of.due(now_s=19.5), "it must end sometimes, to report what it has read"
    assert of.is_joined_soon(0, now_s=20.1)


def test_who_has_a_neighbour_an_end_or_the_slot_of_all_is_not_asked() -> None:
    of = replace(turns(), follow_s=2.0)
    one = started(of, JobKind.FOLLOWING, "a", worker=0, now_s=10.0)
    other = started(of, JobKind.FOLLOWING, "b", worker=0, now_s=10.6)
    beside = started(of, JobKind.FOLLOWING, "c", worker=1, now_s=10.0)
    assert of.due(now_s=11.5) == [beside], "the two share a job from then on"
    of.end(other.job)
    one.is_last = True
    assert of.due(now_s=11.5) == [beside]
    one.is_last = False
    beside.done(strand("c"))
    assert of.due(now_s=11.5) == [one]
    of.end(one.job)
    started(of, JobKind.FOLLOWING, "a", worker=0, now_s=10.0, is_hurried=True)
    assert of.due(now_s=11.5) == [], "a job without a lent place would wait for it"
    of.end(beside.job)
    hangs = started(of, JobKind.FOLLOWING, "d", worker=1, now_s=4.0)
    again = started(of, JobKind.FOLLOWING, "c", worker=1, now_s=10.0)
    assert (hangs.ends_s, of.due(now_s=11.5)) == (6.0, [again])


def test_with_none_to_be_lent_all_are_in_a_hurry() -> None:
    of = turns(0)
    for kind in JobKind:
        assert granted(of, kind, "a", worker=0) == [Grant({"a"}, is_hurried=True)]


@pytest.mark.parametrize("kind", [JobKind.APART, JobKind.ALONE])
def test_a_tenant_is_lent_no_more_slots_than_it_leaves(kind: JobKind) -> None:
    of = turns()
    assert granted(of, kind, "a") == [Grant({"a"}, 10)]
    started(of, kind, "a", "a", "a")
    assert granted(of, kind, "a") == [Grant({"a"}, 4)], "of seven left it has three"
    started(of, kind, "a", "a")
    assert granted(of, kind, "b") == [Grant({"b"}, 5)]
    over = granted(of, kind, "a")
    assert over == ([] if kind is JobKind.APART else [Grant({"a"}, is_hurried=True)])


def test_those_of_several_tenants_go_apart_together_while_each_may() -> None:
    of = turns()
    started(of, JobKind.APART, "a", "a", "b a")
    assert granted(of, JobKind.APART, "a", "b", "c") == [Grant({"a", "b", "c"}, 4)]
    started(of, JobKind.ALONE, "a", "a")
    assert granted(of, JobKind.APART, "a", "b", "c") == [Grant({"b", "c"}, 4)]


def test_a_slot_is_free_once_all_in_it_are_done() -> None:
    of = turns()
    turn = started(of, JobKind.APART, "a b", "a")
    assert (turn.place_count, turn.places_by_tenant) == (2, {"a": 2, "b": 1})
    turn.done(strand("a", 0))
    turn.done(strand("a", 0))
    assert (turn.place_count, turn.places_by_tenant) == (2, {"a": 1, "b": 1})
    turn.done(strand("a", 1))
    assert (turn.place_count, turn.places_by_tenant) == (1, {"b": 1})
    assert granted(of, JobKind.APART, "a") == [Grant({"a"}, 9)]


@pytest.mark.parametrize("kind", [JobKind.SHARED, JobKind.FOLLOWING])
def test_whose_tenant_hangs_in_too_many_slots_is_waited_for_a_moment_and_beside_the_others(
    kind: JobKind,
) -> None:
    of = turns()
    for _ in range(5):
        started(of, kind, "a b", worker=0).done(strand("b"))
    assert granted(of, kind, "a", "b", worker=0) == [Grant({"a", "b"})], "it takes only a moment"
    later_s = FOLLOW_S + PATIENCE_S + 0.1
    grants = [Grant({"b"}), Grant({"a"}, is_hurried=True)]
    assert granted(of, kind, "a", "b", worker=0, now_s=later_s) == grants
    # Each worker may have one such job at a time.
    hurried = started(of, kind, "a", now_s=later_s, worker=0, is_hurried=True)
    assert granted(of, kind, "a", "b", worker=0, now_s=later_s) == grants[:1]
    assert granted(of, kind, "a", "b", worker=1, now_s=later_s) == grants
    hurried.done(strand("a"))
    assert granted(of, kind, "a", "b", worker=0, now_s=later_s) == grants


def test_with_all_slots_lent_whoever_has_none_goes_on_in_one_of_its_kind() -> None:
    of = turns()
    for tenant, tasks in (("a", 5), ("b", 3), ("c", 1), ("d", 1)):
        started(of, JobKind.APART, *[tenant] * tasks)
    for kind in JobKind:
        assert granted(of, kind, "e", worker=0) == [Grant({"e"}, is_hurried=True)]
    assert granted(of, JobKind.APART, "a", "e") == [Grant({"e"}, is_hurried=True)]
    started(of, JobKind.APART, "e", is_hurried=True)
    assert granted(of, JobKind.APART, "f") == []


def crowded(of: Turns, stretch: float) -> Turns:
    """Report that workers waited for processors, and took this many times as long as they need."""
    had = ProcessorTime(0.1, 0.1 * (stretch - 1))
    of.learn(JobKind.APART, [TaskEnd([], had)], now_s=0.0)
    return of


@pytest.mark.parametrize(
    ("stretch", "patience_s"), [(1.0, 2.0), (1.2, 2.4), (2.0, 4.0), (50.0, TIME_BOX_S)]
)
def test_where_processors_are_short_a_job_takes_longer_and_nobody_hangs(
    stretch: float, patience_s: float
) -> None:
    """Otherwise more jobs would run side by side, and processors would be even scarcer."""
    busy = crowded(turns(), stretch)
    turn = started(busy, JobKind.SHARED, "a")
    assert not busy.hangs(turn, now_s=patience_s - 0.01)
    assert busy.hanging(now_s=patience_s + 0.01) == [turn]


@pytest.mark.parametrize(
    ("kind", "other"),
    [(JobKind.SHARED, JobKind.APART), (JobKind.APART, JobKind.SHARED)],
)
def test_where_processors_are_short_a_worker_has_one_job_at_a_time_until_half_of_it_is_done(
    kind: JobKind, other: JobKind
) -> None:
    calm, busy = turns(), crowded(turns(), 1.6)
    for each in (calm, busy):
        started(each, kind, "a b c")
        last = started(each, kind, "a b c")
        assert each.may_start(kind, "a", now_s=0.1) is (each is calm)
        assert each.may_start(other, "a", now_s=0.1)
        assert each.may_start(JobKind.FOLLOWING, "a", now_s=0.1)
        last.done(strand("a"))
        assert each.may_start(kind, "a", now_s=0.1) is (each is calm)
        last.done(strand("b"))
        assert each.may_start(kind, "a", now_s=0.1), "a hanging job delays no other destination"


@pytest.mark.parametrize("kind", [JobKind.SHARED, JobKind.APART])
def test_where_processors_are_short_the_jobs_of_one_tenant_delay_no_other(kind: JobKind) -> None:
    busy = crowded(turns(), 1.6)
    for _ in range(2):
        started(busy, kind, "a a")
    assert not busy.may_start(kind, "a", now_s=0.1)
    assert busy.may_start(kind, "b", now_s=0.1)


def test_a_job_hangs_once_none_of_its_strands_ends_any_more() -> None:
    """Where processors are scarce, a job of a thousand strands takes seconds without a fault."""
    of = turns()
    turn = started(of, JobKind.SHARED, "a b c")
    turn.done(strand("a"))
    assert not of.hangs(turn, now_s=1.5)
    assert not of.hangs(turn, now_s=1.5 + PATIENCE_S)
    assert of.hangs(turn, now_s=1.6 + PATIENCE_S)
    turn.done(strand("b"))
    assert not of.hangs(turn, now_s=TIME_BOX_S)
    assert of.hangs(turn, now_s=TIME_BOX_S + 0.1), "others wait no longer than a time box"


@pytest.mark.parametrize(("stretch", "expected_s"), [(1.5, 0.06), (3.0, 0.12), (90.0, 0.24)])
def test_where_processors_are_short_more_shares_a_job(stretch: float, expected_s: float) -> None:
    busy = crowded(turns(), stretch)
    busy.pause(JobKind.SHARED, {"a": 10}, now_s=0.0)
    assert not busy.may_start(JobKind.SHARED, "a", now_s=expected_s - 0.002)
    assert busy.may_start(JobKind.SHARED, "a", now_s=expected_s + 0.002)


def test_what_was_heard_of_processors_is_forgotten_by_and_by() -> None:
    busy = crowded(turns(), 10.0)
    turn = started(busy, JobKind.SHARED, "a")
    assert not busy.hangs(turn, now_s=2.5)
    for _ in range(20):
        busy.learn(JobKind.APART, [TaskEnd([], ProcessorTime(0.1, 0.0))], now_s=0.0)
    assert busy.hangs(turn, now_s=2.5)
    # A job that hung for half a minute counts little, as its worker had little to do.
    busy.learn(JobKind.APART, [TaskEnd([], ProcessorTime(0.001, 0.01))], now_s=0.0)
    assert busy.hangs(turn, now_s=2.5)


def fed(of: Turns, cores: float, *, from_s: float, for_s: float) -> list[int]:
    """Return how many workers share the healthy destinations after each job of half a second."""
    shared = []
    for step in range(int(2 * for_s)):
        had = [TaskEnd([], ProcessorTime(0.5 * cores, 0.0))]
        of.learn(JobKind.SHARED, had, now_s=from_s + step / 2)
        shared.append(of.workers(JobKind.SHARED))
    return shared


def test_who_has_little_to_do_uses_fewer_workers_and_all_of_them_again_when_there_is_more() -> None:
    """A job costs as much for three destinations as for a hundred."""
    of = Turns(worker_count=4)
    assert of.workers(JobKind.SHARED) == 4, "all workers, until the load is known"
    assert fed(of, 0.1, from_s=0.0, for_s=60)[-1] == 1
    busy = fed(of, 2.0, from_s=60.0, for_s=10)
    assert busy[-1] == 4
    assert busy.index(4) / 2 <= 5.0, "within seconds"
    assert of.workers(JobKind.FOLLOWING) == 4, "real-time lanes do not wait for others' work"


@pytest.mark.parametrize(("cores", "expected_s"), [(0.6, 0.4), (0.2, 0.5), (0.0, 0.7)])
def test_a_worker_with_little_to_do_waits_for_company_for_longer(
    cores: float, expected_s: float
) -> None:
    """Where three processes share work that one could do, each job has a third of it."""
    of = Turns(worker_count=2)
    fed(of, cores, from_s=0.0, for_s=60)
    of.pause(JobKind.SHARED, {"a": 200}, now_s=0.0)
    assert not of.may_start(JobKind.SHARED, "a", now_s=expected_s - 0.02)
    assert of.may_start(JobKind.SHARED, "a", now_s=expected_s + 0.02)


def test_a_third_of_what_takes_two_workers_is_for_one() -> None:
    of = Turns(worker_count=2)
    assert fed(of, 0.6, from_s=0.0, for_s=60)[-1] == 2
    assert fed(of, 0.23, from_s=60.0, for_s=60)[-1] == 1


@pytest.mark.parametrize("cores", [0.25, 0.31, 0.59, 0.61, 0.9])
def test_how_many_share_does_not_swing(cores: float) -> None:
    """With each change of its worker, a destination needs new connections."""
    of = Turns(worker_count=4)
    fed(of, cores, from_s=0.0, for_s=60)
    assert len({*fed(of, cores, from_s=60.0, for_s=60)}) == 1


def test_each_executor_has_something_to_do() -> None:
    of = Turns(worker_count=4, worker_count_min=2)
    assert fed(of, 0.01, from_s=0.0, for_s=60)[-1] == 2
