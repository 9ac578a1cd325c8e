"""Whether one of several machines that send to a destination may send a request now."""

from msgspec.structs import replace

from shared.flow.breaker import ASK_AGAIN_MS, Breaker, BreakerState, Start
from shared.flow.concurrency import Concurrency
from shared.flow.flow import Flow
from shared.flow.neighbours import TURN_MS, Neighbours, StoreNews
from shared.flow.starting import Answer, NotNow, at_its_part, is_calm, may_start, running, started
from shared.retry.attempt import Failure
from tests.support.suite.samples import NOW_MS
from tests.unit.flow.test_flow import LIMITS, limits_with


def beside(at_ms: int = NOW_MS, *, has: int = 2, wants: int = 4, **known: object) -> Flow:
    """Return a flow of the store m, beside one that is called a."""
    told = {"a": StoreNews(at_ms, wants, has, 1.0)}
    mine = StoreNews(at_ms, 4, 2, 1.0)
    return Flow(neighbours=Neighbours("m", mine, told), **known)  # type: ignore[arg-type]


def ask(flow: Flow, now_ms: int = NOW_MS, rate: float | None = None) -> tuple[Flow, Answer]:
    limits = limits_with(rate_per_s=rate)
    return may_start(flow, limits, task="t", running_count=0, now_ms=now_ms)


def test_a_machine_has_what_others_have_given_up_and_asks_for_more() -> None:
    full, answer = ask(beside(concurrency=Concurrency(4.0), has=4))
    assert isinstance(answer, NotNow)
    assert answer.failure is Failure.BUDGET_USED_UP
    assert full.neighbours.full_until_ms > NOW_MS
    half, answer = ask(beside(concurrency=Concurrency(4.0), has=2))
    assert (half.neighbours.has, answer) == (2, Start(is_probe=False))
    assert not is_calm(half, LIMITS, now_ms=NOW_MS)
    # Nothing is computed for a machine that has no task.
    idle = beside()
    assert at_its_part(idle, LIMITS, now_ms=NOW_MS) is idle
    # The machine's part is full: machines whose parts are too small take turns to try more.
    tries = [
        ask(beside(NOW_MS + turn * TURN_MS, has=2, concurrency=Concurrency(2.0)))[0]
        for turn in range(2)
    ]
    assert sorted(each.concurrency.window.was_full for each in tries) == [False, True]


def test_a_rate_is_shared_and_who_waits_for_it_says_so() -> None:
    flow, answer = ask(beside(concurrency=Concurrency(4.0)), rate=100.0)
    assert answer == Start(is_probe=False)
    sent = started(flow, limits_with(rate_per_s=100.0), event_count=200, now_ms=NOW_MS)
    assert sent.neighbours.sent == 200
    waits, answer = ask(sent, rate=100.0)
    assert isinstance(answer, NotNow)
    # The machine gets all of the rate but the one event a second that the other one wants.
    assert answer.until_ms == NOW_MS + round((200 - 9.9) / 99 * 1000)
    assert waits.neighbours.slow_until_ms > answer.until_ms


def test_a_part_of_what_is_less_than_a_whole_number_is_begun_as_much_further_apart() -> None:
    limit = Concurrency(1.5, mean_ms=150.0)
    flow, answer = ask(beside(concurrency=limit, has=1))
    # While it is not known when the other machine sent last, the first one waits, too.
    assert answer == NotNow(Failure.OVER_RATE, NOW_MS + 200)
    flow, answer = ask(flow, NOW_MS + 200)
    assert answer == Start(is_probe=False)
    gone = started(flow, LIMITS, event_count=1, now_ms=NOW_MS + 200)
    assert gone.paced_until_ms == NOW_MS + 400
    alone = Flow(concurrency=limit, paced_until_ms=NOW_MS)
    assert started(alone, LIMITS, event_count=1, now_ms=NOW_MS).paced_until_ms == NOW_MS + 100


def test_a_probe_is_for_the_machine_whose_turn_it_is() -> None:
    due = Breaker(BreakerState.OPEN, open_count=1, until_ms=NOW_MS)
    turns = [ask(beside(NOW_MS + turn * TURN_MS, breaker=due)) for turn in range(2)]
    answers = [answer for _, answer in turns]
    assert Start(is_probe=True) in answers
    assert NotNow(Failure.BREAKER_OPEN, NOW_MS + ASK_AGAIN_MS) in answers
    for flow, answer in turns:
        assert (flow.breaker is due) is isinstance(answer, NotNow), "no probe is under way here"


def test_what_it_has_is_kept_while_its_requests_run() -> None:
    flow, _ = ask(beside(concurrency=Concurrency(8.0), has=6))
    assert flow.neighbours.has == 2
    busy = running(flow, "t", 2)
    assert running(busy, "t", 2) is busy
    again = at_its_part(busy, LIMITS, now_ms=NOW_MS)
    assert (again.neighbours.has, again.neighbours.most) == (2, 2)
    assert at_its_part(replace(again), LIMITS, now_ms=NOW_MS) == again
