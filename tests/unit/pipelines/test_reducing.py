"""A reducer's results are the same, in whatever order they were merged."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.functions import Reducer, reducing
from pipelines.functions.faults import FunctionFailedError
from pipelines.functions.reducing import STATE_BYTES_MAX, begun, folded
from pipelines.functions.states import FoldedState, ToFold
from pipelines.windows.aggregates import states_of
from pipelines.windows.change import Head
from pipelines.windows.open_windows import OpenWindows, Partial
from shared.config.steps.window import WindowOf

MINUTE_MS = 60_000
BOTH = WindowOf(compute={"sum": "call(shop.sum)", "n": "count(*)"}, every="1 minute")


def begin_sum(events: pa.RecordBatch) -> list[Any]:
    return [None if n is None else {"sum": n} for n in events["n"].to_pylist()]


def add(one: Any, other: Any) -> Any:
    # Some merges change their arguments, and so does this one.
    one["sum"] += other["sum"]
    return one


SUM = Reducer(reads="n BIGINT", begin=begin_sum, merge=add, finish=lambda state: state["sum"])


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Reducer], None]:
    """Install `shop.sum` as the test defines it; by default it adds."""

    def install(reducer: Reducer) -> None:
        monkeypatch.setattr(reducing, "reducer_of", lambda _: reducer)

    install(SUM)
    return install


def fold(asked: Sequence[ToFold]) -> list[FoldedState]:
    return [folded(each, both_ways=True) for each in asked]


def states(*numbers: int) -> dict[str, int]:
    return dict(Counter(json.dumps({"sum": number}, separators=(",", ":")) for number in numbers))


@given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=30), min_size=1, max_size=5))
def test_a_window_has_what_all_its_events_come_to(jobs: list[list[int]]) -> None:
    kept, said = OpenWindows(BOTH, Head("s")), []
    for numbers in jobs:
        part = [states_of(states(*numbers)), len(numbers)]
        change = kept.changed_by([Partial(0, MINUTE_MS, "{}", 0, 0, part)], 0, fold=fold)
        said += [json.loads(row.value) for row in change.rows]
        kept.apply(change)
        # A reader of the records can continue from them.
        again = OpenWindows(BOTH, Head("s"))
        for key, value in change.records:
            again.read(key, value)
        kept = again
    assert said[-1]["sum"] == sum(map(sum, jobs))
    assert said[-1]["n"] == sum(map(len, jobs))
    assert len(change.records[-1][1] or b"") < 200, "one of many states is kept"


def test_an_event_that_adds_nothing_is_counted_by_others() -> None:
    kept = OpenWindows(BOTH, Head("s"))
    nothing = [states_of({}), 2]
    (row,) = kept.changed_by([Partial(0, MINUTE_MS, "{}", 0, 0, nothing)], 0).rows
    assert json.loads(row.value)["sum"] is None
    assert json.loads(row.value)["n"] == 2


def test_the_same_state_a_great_many_times_takes_few_steps(
    installed: Callable[[Reducer], None],
) -> None:
    steps = []

    def merge(one: Any, other: Any) -> Any:
        steps.append(1)
        return add(one, other)

    installed(Reducer(reads="n BIGINT", begin=begin_sum, merge=merge))
    come = folded(ToFold("shop.sum", {'{"sum":3}': 1_000_001}))
    assert json.loads(come.says) == {"sum": 3_000_003}
    assert len(steps) < 50


def events(*numbers: int | None) -> Any:
    """Return events, the last of which is no longer on its way."""
    asked = [{"n": number} for number in numbers]
    return pa.array([*asked, None], pa.struct([pa.field("n", pa.int64())]))


def test_each_event_has_its_state_and_who_is_gone_is_not_asked_about() -> None:
    assert begun("shop.sum", events(1, None, 2)).to_pylist() == [
        '{"sum":1}',
        None,
        '{"sum":2}',
        None,
    ]
    assert begun("shop.sum", events()).to_pylist() == [None]


def none_too_few(_: pa.RecordBatch) -> list[Any]:
    return []


class DumbError(Exception):
    def __str__(self) -> str:
        raise ValueError("no word")


def dumb(_: pa.RecordBatch) -> list[Any]:
    raise DumbError


def leaves(_: pa.RecordBatch) -> list[Any]:
    raise SystemExit("it has had\n  enough")


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        (dumb, "shop.sum: DumbError: its message cannot be read"),
        (leaves, "shop.sum: SystemExit: it has had enough"),
        (none_too_few, "ValueError: it returned 0 states for 1 events"),
        (lambda _: [float("nan")], "ValueError: Out of range float values are not JSON compliant"),
        (lambda _: [{1, 2}], "TypeError: Object of type set is not JSON serializable"),
        (lambda _: 7, "TypeError: object of type 'int' has no len()"),
    ],
)
def test_what_it_has_not_promised_is_its_fault(
    installed: Callable[[Reducer], None], begin: Any, why: str
) -> None:
    installed(Reducer(reads="n BIGINT", begin=begin, merge=add))
    with pytest.raises(FunctionFailedError, match=r"^shop\.sum: ") as found:
        begun("shop.sum", events(1))
    assert why in str(found.value)


def test_what_keeps_too_much_or_goes_by_the_order_fails(
    installed: Callable[[Reducer], None],
) -> None:
    installed(Reducer(reads="n BIGINT", begin=begin_sum, merge=lambda one, other: [one, other]))
    longest = {json.dumps("x" * 1_000 + str(nth)): 1 for nth in range(40)}
    with pytest.raises(FunctionFailedError, match=f"bytes per window; max {STATE_BYTES_MAX:,}"):
        folded(ToFold("shop.sum", longest))
    with pytest.raises(FunctionFailedError, match=r"its result is .* and in another order"):
        folded(ToFold("shop.sum", states(1, 2)), both_ways=True)
    assert folded(ToFold("shop.sum", states(1, 2))).says == '[{"sum":1},{"sum":2}]'


def test_a_state_that_cannot_be_merged_is_found_while_it_is_alone(
    installed: Callable[[Reducer], None],
) -> None:
    def merge(one: Any, _: Any) -> Any:
        return one["no such member"]

    installed(Reducer(reads="n BIGINT", begin=begin_sum, merge=merge))
    with pytest.raises(FunctionFailedError, match="KeyError"):
        folded(ToFold("shop.sum", states(1)))
