"""A machine's share of a destination's limits beside others, from the news of all machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.flow.neighbours import (
    ALL,
    FORGET_MS,
    STALE_MS,
    TELL_MS,
    TELL_SOON_MS,
    TURN_MS,
    WANT_MS,
    Neighbours,
    StoreNews,
    heard,
    is_to_tell,
    news_of,
    noted_running,
    noted_sent,
    noted_waiting,
    rate_here,
    shared_out,
    spread,
)
from tests.support.suite.samples import NOW_MS

counts = st.integers(0, 20)


def news(at_ms: int = NOW_MS, *, wants: int = 1, has: int = 0, rate: float = 0.0) -> StoreNews:
    return StoreNews(at_ms, wants, has, rate)


def beside(*others: StoreNews, mine: StoreNews | None = None, **known: int) -> Neighbours:
    """Return the view of a store called m, beside others called a, b and so on."""
    told = {chr(ord("a") + nth): each for nth, each in enumerate(others)}
    return Neighbours("m", mine or news(), told, **known)


def test_what_is_wanted_is_given_one_by_one_and_then_what_is_left() -> None:
    assert spread(7, {"a": 1, "b": 9, "c": 9}, turn=0) == {"a": 1, "b": 3, "c": 3}
    assert spread(9, {"a": 1, "b": 2}, turn=0) == {"a": 4, "b": 5}
    assert spread(0, {"a": 1}, turn=5) == {"a": 0}
    turns = [spread(1, {"a": 9, "b": 9, "c": 9}, turn=turn) for turn in range(4)]
    assert [[name for name, count in each.items() if count] for each in turns] == [
        *(["a"], ["b"], ["c"], ["a"])
    ]


@given(counts, st.lists(counts, min_size=1, max_size=8), counts)
def test_no_more_is_given_than_there_is_and_nobody_gets_less_than_an_even_part(
    permits: int, wants: list[int], turn: int
) -> None:
    given_ = spread(permits, {str(nth): want for nth, want in enumerate(wants)}, turn=turn)
    assert sum(given_.values()) == permits
    for nth, want in enumerate(wants):
        assert given_[str(nth)] >= min(want, permits // len(wants))


def test_news_may_come_in_any_order_and_again() -> None:
    old, new = {"a": news(NOW_MS, has=3)}, {"a": news(NOW_MS + 1, has=2), "m": news()}
    known = heard(Neighbours(), new, me="m", now_ms=NOW_MS)
    assert (known.me, known.others) == ("m", {"a": new["a"]})
    assert heard(known, old, me="m", now_ms=NOW_MS) is known
    assert heard(known, new, me="m", now_ms=NOW_MS) is known
    # News from a clock that is far off, or from long ago, is ignored.
    far = {"b": news(NOW_MS + 60_000), "c": news(NOW_MS - 60_000)}
    assert heard(known, far, me="m", now_ms=NOW_MS) is known
    assert heard(known, {}, me="m", now_ms=NOW_MS + STALE_MS + 1).others == {}


def test_who_is_silent_while_others_are_not_is_forgotten_and_who_has_left_at_once() -> None:
    known = beside(news(), news(NOW_MS + FORGET_MS - 1))
    assert set(known.active) == {"a", "b"}
    assert set(beside(news(), news(NOW_MS + FORGET_MS)).active) == {"b"}
    assert set(replace(known, mine=news(NOW_MS + FORGET_MS)).active) == {"b"}
    assert not beside(news(wants=0)).active
    assert not Neighbours().active


def test_what_others_have_is_taken_only_when_they_have_given_it_up() -> None:
    def has(known: Neighbours, permits: int, running: int = 0, now_ms: int = NOW_MS) -> int:
        return shared_out(known, permits, running=running, now_ms=now_ms).has

    assert has(beside(news(wants=8, has=8)), 8) == 0
    assert has(beside(news(wants=8, has=5), mine=news(wants=8)), 8) == 3
    # A machine's own excess is given up at once, whatever runs.
    assert has(beside(news(wants=8, has=8), mine=news(wants=8), has=8), 8, running=8) == 4
    # A machine keeps what it has while the other machine has more than its part.
    assert has(beside(news(wants=8, has=6), mine=news(wants=8), has=3), 8) == 3
    assert has(beside(news(wants=8, has=4), mine=news(wants=8), has=4), 8) == 4
    # A machine that was silent for long, or had left, gets only the requests that it is running.
    late_ms = NOW_MS + FORGET_MS
    silent = beside(news(late_ms, wants=8, has=8), mine=news(wants=8), has=4)
    assert has(silent, 8, running=2, now_ms=late_ms) == 2
    assert has(beside(news(wants=8, has=8), mine=news(wants=0), has=4), 8) == 0
    same = shared_out(known := beside(news(has=1), has=4), 8, running=0, now_ms=NOW_MS)
    assert same is known


def test_with_fewer_requests_than_machines_they_take_turns() -> None:
    turns = [beside(*[news(NOW_MS + at * TURN_MS)] * 2).target(1) for at in range(3)]
    assert sorted(turns) == [0, 0, 1]
    assert Neighbours().target(1) == 1


def test_one_of_those_that_have_not_enough_tries_what_more_there_is() -> None:
    assert Neighbours().is_to_try_more
    assert beside(news(wants=2, has=2)).is_to_try_more
    short = [news(NOW_MS + at * TURN_MS, wants=4, has=2) for at in range(2)]
    assert sorted(beside(each).is_to_try_more for each in short) == [False, True]


@pytest.mark.parametrize(
    ("wants", "part"), [([], 90), ([ALL], 45), ([ALL, ALL], 30), ([10, 5], 75), ([10, ALL], 40)]
)
def test_of_a_rate_a_machine_gets_what_others_do_not_want(wants: list[float], part: float) -> None:
    known = beside(*(news(rate=each) for each in wants))
    assert rate_here(known, 90) == part
    assert rate_here(known, None) is None


def test_what_is_wanted_is_counted_only_beside_others() -> None:
    alone = Neighbours()
    assert noted_waiting(alone, "rate", until_ms=NOW_MS, now_ms=NOW_MS) is alone
    assert news_of(alone, running=3, is_here=True, now_ms=NOW_MS) == news(wants=3, has=3, rate=ALL)
    assert news_of(alone, running=0, is_here=False, now_ms=NOW_MS) == news(wants=0)


def test_a_machine_tells_what_it_had_use_for_in_the_last_seconds() -> None:
    def told(known: Neighbours, now_ms: int = NOW_MS, running: int = 0) -> StoreNews:
        return news_of(known, running=running, is_here=True, now_ms=now_ms)

    known = noted_running(beside(news(), has=2), 2, now_ms=NOW_MS)
    assert noted_running(known, 1, now_ms=NOW_MS + WANT_MS - 1) is known
    assert noted_running(known, 1, now_ms=NOW_MS + WANT_MS).most == 1
    assert told(known).wants == 2
    assert told(known, NOW_MS + 2 * WANT_MS).wants == 1
    assert told(known, running=5) == news(wants=5, has=5)
    full = noted_waiting(known, "permits", until_ms=NOW_MS, now_ms=NOW_MS)
    assert told(full, NOW_MS + WANT_MS - 1).wants == 4
    assert told(full, NOW_MS + WANT_MS).wants == 2
    slow = noted_waiting(known, "rate", until_ms=NOW_MS + 500, now_ms=NOW_MS)
    assert told(slow, NOW_MS + 500 + WANT_MS - 1).rate == ALL
    sent = noted_sent(replace(known, sent_since_ms=NOW_MS), 30, now_ms=NOW_MS)
    assert told(sent, NOW_MS + 1).rate == 30
    before = noted_sent(sent, 1, now_ms=NOW_MS + 2_000)
    assert (before.rate, before.sent) == (15, 1)
    assert told(before, NOW_MS + 2_001).rate == 15


def test_others_hear_once_a_second_and_at_once_if_they_wait_for_it() -> None:
    def tells(now: StoreNews, *others: StoreNews) -> bool:
        mine = news(wants=4, has=3)
        return is_to_tell(beside(*(others or (news(wants=9, has=1),)), mine=mine), now)

    soon_ms = NOW_MS + TELL_SOON_MS
    assert tells(news(NOW_MS + TELL_MS, wants=4, has=3))
    assert not tells(news(soon_ms, wants=4, has=3))
    assert tells(news(soon_ms, wants=4, has=2))
    assert not tells(news(soon_ms - 1, wants=4, has=2))
    assert not tells(news(soon_ms, wants=4, has=2), news(wants=2, has=2))
    assert tells(news(soon_ms, wants=5, has=3), news(wants=2, has=2))
    assert not tells(news(soon_ms, wants=5, has=5), news(wants=2, has=2))
    assert tells(news(soon_ms, wants=4, has=3, rate=ALL))
    assert tells(news(soon_ms, wants=0))
    gone = beside(news(), mine=news(wants=0))
    assert not is_to_tell(gone, news(NOW_MS + TELL_MS, wants=0))
