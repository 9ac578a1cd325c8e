"""Machines adopt what one of them has learned about a destination, whatever their clocks say."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.flow.breaker import Breaker, BreakerState
from shared.flow.concurrency import Concurrency, Window
from shared.flow.flow import ChangeCounts, Flow, FlowState
from shared.flow.flow_record import FlowRecord, folded, going_on
from shared.flow.learning import counted, learned, shifted
from shared.flow.neighbours import STALE_MS, Neighbours, StoreNews
from shared.flow.rate_gate import RateGate
from shared.flow.rejects import HALVES_IN_ROW
from shared.flow.sharing import SendingTask
from tests.support.suite.samples import NOW_MS
from tests.unit.flow.test_flow import LIMITS

OPEN = Breaker(BreakerState.OPEN, open_count=1, until_ms=NOW_MS + 30_000)
COMPANY = Neighbours("m", StoreNews(NOW_MS, 1), {"a": StoreNews(NOW_MS, 1)})


def a_flow(changes: tuple[int, int, int] = (0, 0, 0), **known: object) -> Flow:
    return Flow(changes=ChangeCounts(*changes), **known)  # type: ignore[arg-type]


def count(before: Flow, after: Flow) -> ChangeCounts:
    return counted(before, after, now_ms=NOW_MS).changes


def test_each_change_of_what_all_should_know_is_counted() -> None:
    flow = Flow()
    assert counted(flow, flow, now_ms=NOW_MS) is flow
    assert count(flow, replace(flow, breaker=OPEN)) == ChangeCounts(breaker=1)
    assert count(flow, replace(flow, held_at_ms=5)) == ChangeCounts(breaker=1)
    assert count(flow, replace(flow, halves_refused=HALVES_IN_ROW)) == ChangeCounts(breaker=1)
    # Failures that have not opened the breaker are counted by the machine that saw them.
    assert count(flow, replace(flow, breaker=Breaker(failures_in_row=3))) == ChangeCounts()
    assert count(flow, replace(flow, gate=RateGate(closed_until_ms=9))) == ChangeCounts(gate=1)
    assert count(flow, replace(flow, concurrency=Concurrency(4.0))) == ChangeCounts(limit=1)


def test_what_was_too_much_outweighs_what_others_have_tried_since() -> None:
    flow = Flow(concurrency=Concurrency(4.0))
    lower = counted(flow, replace(flow, concurrency=Concurrency(3.0)), now_ms=NOW_MS)
    higher = flow
    for limit in (5.0, 6.0, 7.0):
        tried = replace(higher, concurrency=Concurrency(limit))
        higher = counted(higher, tried, now_ms=NOW_MS)
    assert learned(higher, lower, now_ms=NOW_MS).concurrency.limit == 3.0
    assert learned(lower, higher, now_ms=NOW_MS) is lower
    # Other machines hear of the lower limit later, so requests that end soon say nothing about it.
    beside = replace(flow, neighbours=COMPANY)
    less = replace(beside, concurrency=Concurrency(3.0, mean_ms=400.0))
    settled = counted(beside, less, now_ms=NOW_MS)
    assert settled.concurrency.settles_at_ms == NOW_MS + 400
    assert lower.concurrency.settles_at_ms == 0


def test_who_knows_better_is_believed_part_by_part() -> None:
    ours = a_flow((3, 1, 5), concurrency=Concurrency(9.0))
    gate = RateGate(closed_until_ms=NOW_MS + 500)
    stopped = a_flow((4, 2, 4), breaker=OPEN, held_at_ms=7, disabled_at_ms=8)
    theirs = replace(stopped, gate=gate)
    both = learned(ours, theirs, now_ms=NOW_MS)
    assert both.changes == ChangeCounts(4, 2, 5)
    assert (both.breaker, both.gate.closed_until_ms) == (OPEN, NOW_MS + 500)
    assert (both.held_at_ms, both.disabled_at_ms, both.concurrency.limit) == (7, 8, 9.0)
    assert learned(both, theirs, now_ms=NOW_MS) is both
    assert learned(both, ours, now_ms=NOW_MS) is both
    known = learned(theirs, ours, now_ms=NOW_MS)
    assert known.concurrency.limit == 9.0


def test_of_two_who_changed_it_at_the_same_time_the_stricter_is_right() -> None:
    shut = replace(a_flow((1, 0, 0)), breaker=OPEN)
    assert learned(a_flow((1, 0, 0)), shut, now_ms=NOW_MS).breaker == OPEN
    assert learned(shut, a_flow((1, 0, 0)), now_ms=NOW_MS) is shut
    long, short = (
        replace(a_flow((0, 1, 0)), gate=RateGate(closed_until_ms=NOW_MS + wait_ms))
        for wait_ms in (60_000, 1_000)
    )
    assert learned(short, long, now_ms=NOW_MS).gate == long.gate
    assert learned(long, short, now_ms=NOW_MS) is long
    # A difference between clocks does not count.
    later = replace(short, gate=RateGate(closed_until_ms=NOW_MS + 2_500))
    assert learned(short, later, now_ms=NOW_MS) is short


def test_a_well_breaker_keeps_what_was_counted_here() -> None:
    failing = Flow(breaker=Breaker(failures_in_row=7))
    closed = replace(a_flow((2, 0, 0)), breaker=Breaker(closed_at_ms=5))
    both = learned(failing, closed, now_ms=NOW_MS)
    assert (both.breaker.failures_in_row, both.changes.breaker) == (7, 2)
    opened = replace(failing, breaker=OPEN)
    assert learned(opened, closed, now_ms=NOW_MS).breaker == closed.breaker


def test_who_hears_that_another_cannot_send_hears_since_when() -> None:
    """Otherwise the lane would not rest: it sees an open breaker without failures."""
    opened = replace(a_flow((2, 0, 0)), breaker=OPEN, failing_since_ms=NOW_MS - 9_000)
    assert learned(Flow(), opened, now_ms=NOW_MS).failing_since_ms == NOW_MS - 9_000
    busy = Flow(failing_since_ms=NOW_MS - 1_000)
    closed = a_flow((2, 0, 0))
    assert learned(busy, closed, now_ms=NOW_MS).failing_since_ms == NOW_MS - 1_000


def test_a_taken_over_limit_begins_a_window_of_its_own() -> None:
    ours = Flow(concurrency=Concurrency(8.0, window=Window(1, 5, 5, was_full=True)))
    more = replace(a_flow((0, 0, 1)), concurrency=Concurrency(9.0, mean_ms=100.0))
    less = replace(a_flow((0, 0, 1)), concurrency=Concurrency(2.0, mean_ms=100.0))
    taken = learned(ours, more, now_ms=NOW_MS).concurrency
    assert (taken.window, taken.settles_at_ms) == (Window(was_full=True), NOW_MS + 100)
    assert learned(ours, less, now_ms=NOW_MS).concurrency.settles_at_ms == NOW_MS + 250


def test_a_persons_last_word_is_not_undone_by_who_has_not_heard_it() -> None:
    resumed, dead = Flow(resumed_at_ms=5), replace(a_flow((9, 0, 0)), disabled_at_ms=3)
    assert learned(resumed, dead, now_ms=NOW_MS) is resumed
    assert learned(dead, resumed, now_ms=NOW_MS) is dead


def test_times_are_told_by_another_clock() -> None:
    probing = replace(OPEN, state=BreakerState.HALF_OPEN, probe_until_ms=NOW_MS + 9)
    flow = Flow(breaker=probing, gate=RateGate(closed_until_ms=NOW_MS + 7))
    later = shifted(flow, 100)
    assert later.breaker.until_ms == OPEN.until_ms + 100
    assert later.breaker.probe_until_ms == NOW_MS + 109
    assert later.gate.closed_until_ms == NOW_MS + 107
    assert shifted(Flow(breaker=OPEN), 100).breaker.probe_until_ms == 0
    assert shifted(Flow(), 100) == Flow()


def a_record(store: str, flow: Flow, at_ms: int = NOW_MS) -> FlowRecord:
    mine = StoreNews(at_ms, wants=2, has=1)
    flow = replace(flow, neighbours=Neighbours(mine=mine))
    record = FlowRecord(flow, store=store, published_at_ms=at_ms, updated_at_ms=at_ms)
    return record.hearing(flow, now_ms=at_ms)


def test_the_topic_amounts_to_what_the_best_of_all_know_and_who_sends() -> None:
    shut = a_record("a", replace(a_flow((1, 0, 0)), breaker=OPEN))
    late = a_record("b", Flow(), NOW_MS + 1)
    known = folded(folded(None, shut, now_ms=NOW_MS), late, now_ms=NOW_MS + 1)
    assert (known.store, known.state) == ("b", FlowState.OPEN)
    assert known.flow.neighbours.others == {"a": shut.flow.neighbours.mine}
    again = folded(known, replace(shut, updated_at_ms=NOW_MS + 2), now_ms=NOW_MS + 2)
    assert again.flow.neighbours.others == {"b": late.flow.neighbours.mine}
    old = folded(known, a_record("c", Flow(), NOW_MS + STALE_MS + 1), now_ms=NOW_MS)
    assert old.flow.neighbours.others == {}


def test_a_time_of_a_clock_that_is_a_second_off_is_set_right() -> None:
    def until_ms(off_ms: int) -> int:
        gate = RateGate(closed_until_ms=NOW_MS + 5_000)
        told = a_record("a", replace(a_flow((0, 1, 0)), gate=gate))
        return folded(None, told, now_ms=NOW_MS + off_ms).flow.gate.closed_until_ms - NOW_MS

    assert [until_ms(off) for off in (0, 100, 900, -50, -900)] == [
        5_000,
        5_000,
        5_900,
        4_950,
        4_100,
    ]
    # The report is old: its age says nothing about its machine's clock.
    assert until_ms(60_000) == 5_000


def go_on(kept: FlowRecord, published: FlowRecord) -> FlowRecord:
    return going_on(kept, published, LIMITS, store="new", now_ms=NOW_MS + 5)


def test_a_file_hears_of_others_and_is_not_changed_by_hearing_it_again() -> None:
    sending = {"t": SendingTask(NOW_MS + 9_000, 1)}
    ours = FlowRecord(Flow(tasks=sending, retry_tokens=3.0), store="m", updated_at_ms=NOW_MS)
    theirs = a_record("a", replace(a_flow((1, 0, 0)), breaker=OPEN), NOW_MS + 2)
    both = go_on(ours, theirs)
    assert (both.state, both.store, both.flow.tasks) == (FlowState.OPEN, "m", sending)
    assert both.flow.neighbours.others == {"a": theirs.flow.neighbours.mine}
    # The machine sends, too: it keeps its own knowledge, and shared knowledge is not news.
    assert both.flow.retry_tokens == 3.0
    assert (both.updated_at_ms, both.is_news) == (NOW_MS, False)
    assert go_on(both, theirs) is both
    own = FlowRecord(Flow(), store="m", updated_at_ms=NOW_MS)
    assert go_on(ours, own) is ours


def test_who_does_not_send_goes_on_from_the_later_record_but_not_behind_what_it_knows() -> None:
    ours = FlowRecord(replace(a_flow((5, 0, 0)), breaker=OPEN), store="m", updated_at_ms=NOW_MS)
    theirs = a_record("a", replace(a_flow((4, 0, 0)), retry_tokens=7.0), NOW_MS + 1)
    both = go_on(ours, theirs)
    assert (both.flow.retry_tokens, both.flow.breaker, both.store) == (7.0, OPEN, "m")


def test_beside_others_it_is_published_once_a_second_and_when_it_leaves() -> None:
    company = replace(COMPANY, mine=StoreNews(NOW_MS, 1, 1))
    flow = Flow(neighbours=company, tasks={"t": SendingTask(NOW_MS + 60_000, 1)})
    record = FlowRecord(flow, store="m", updated_at_ms=NOW_MS, published_at_ms=NOW_MS)
    assert not record.is_to_publish(now_ms=NOW_MS + 999)
    assert record.is_to_publish(now_ms=NOW_MS + 1_000)
    told = record.published(now_ms=NOW_MS + 1_000)
    assert told.flow.neighbours.mine == StoreNews(NOW_MS + 1_000, 1, 1)
    was_here = replace(company, most=1, most_at_ms=NOW_MS)
    idle = replace(record, flow=replace(flow, tasks={}, neighbours=was_here))
    assert idle.of_us(now_ms=NOW_MS + 1_999).wants == 1
    assert idle.of_us(now_ms=NOW_MS + 2_000) == StoreNews(NOW_MS + 2_000)


@given(st.permutations(range(5)), st.lists(st.integers(0, 4), max_size=5))
def test_the_order_of_news_does_not_matter(order: list[int], again: list[int]) -> None:
    told = [
        a_flow((1, 0, 0)),
        replace(a_flow((2, 0, 0)), breaker=OPEN),
        replace(a_flow((0, 3, 0)), gate=RateGate(closed_until_ms=NOW_MS)),
        replace(a_flow((0, 0, 101)), concurrency=Concurrency(3.0)),
        replace(a_flow((0, 2, 101)), concurrency=Concurrency(4.0)),
    ]
    flow = Flow()
    for nth in [*order, *again]:
        flow = learned(flow, told[nth], now_ms=NOW_MS)
    assert flow.changes == ChangeCounts(2, 3, 101)
    assert (flow.breaker, flow.concurrency.limit) == (OPEN, 3.0)
