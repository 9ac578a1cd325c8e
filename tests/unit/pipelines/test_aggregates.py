"""Parts of aggregates merge in any order to the same result as the whole."""

import json
import math
import random
from collections import Counter
from functools import partial, reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.windows import aggregates
from pipelines.windows.aggregates import (
    AGGREGATES,
    OVERFLOW,
    RANKS,
    REGISTERS,
    SET_MAX,
    kept_of,
    merged,
    most_of,
    packed,
    top_text,
)

NUMBERS = st.lists(st.integers(-(10**30), 10**30), min_size=1, max_size=20)


def come_to(name: str, parts: list[Any]) -> Any:
    return json.loads(AGGREGATES[name].finish(reduce(partial(merged, name), parts)))


@given(NUMBERS, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_any_order_comes_to_the_same(numbers: list[int], dice: random.Random) -> None:
    mixed = dice.sample(numbers, len(numbers))
    assert come_to("count", [1] * len(mixed)) == len(numbers)
    assert come_to("sum", [str(number) for number in mixed]) == sum(numbers)
    assert come_to("min", [str(number) for number in mixed]) == min(numbers)
    assert come_to("max", [str(number) for number in mixed]) == max(numbers)
    mean = come_to("avg", [[str(number), 1] for number in mixed])
    assert mean == pytest.approx(sum(numbers) / len(numbers))
    places = [[at, 0, at, str(number)] for at, number in enumerate(numbers)]
    assert come_to("first", dice.sample(places, len(places))) == numbers[0]
    assert come_to("last", dice.sample(places, len(places))) == numbers[-1]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_values_are_kept_and_counted(values: list[int], dice: random.Random) -> None:
    mixed = dice.sample(values, len(values))
    sets = [{"v": [str(value)], "cut": False} for value in mixed]
    assert sorted(come_to("collect_set", sets)) == sorted(set(values))
    tops = [{"v": {str(value): 1}, "cut": False} for value in mixed]
    counts = {it["value"]: it["count"] for it in come_to("top", tops)}
    assert counts == Counter(values)


def test_none_is_as_good_as_nothing() -> None:
    assert merged("sum", None, "5") == "5"
    assert merged("sum", "5", None) == "5"
    assert merged("sum", None, None) is None
    assert come_to("avg", [[None, 0]]) is None
    assert come_to("avg", [[None, 0], ["4", 2]]) == 2


def test_decimals_stay_exact_and_what_json_has_no_word_for_is_null() -> None:
    assert AGGREGATES["sum"].finish(merged("sum", "0.10", "0.20")) == "0.30"
    assert AGGREGATES["sum"].finish(merged("sum", "0.0000000", "0.0000000")) == "0.0000000"
    assert come_to("sum", [1.5, 2.5]) == 4.0
    assert come_to("sum", [1e308, 1e308]) is None
    assert come_to("min", ["12.50", "9"]) == 9
    assert come_to("max", ['"b"', '"ä"']) == "ä"


def test_a_sum_that_was_too_long_for_spark_is_no_number_whatever_comes_after_it() -> None:
    """The part was once left out, and the rest was written as if it were the whole."""
    whole = reduce(partial(merged, "sum"), ["5", OVERFLOW, "-7", OVERFLOW])
    assert (AGGREGATES["sum"].finish(whole), AGGREGATES["sum"].is_cut(whole)) == ("null", True)
    mean = reduce(partial(merged, "avg"), [["5", 1], [OVERFLOW, 2]])
    assert (AGGREGATES["avg"].finish(mean), AGGREGATES["avg"].is_cut(mean)) == ("null", True)
    assert not AGGREGATES["sum"].is_cut("5")
    assert not AGGREGATES["avg"].is_cut(["5", 1])


def test_a_sum_that_becomes_too_long_only_over_many_jobs_is_no_number_either() -> None:
    nines = "9" * 38
    for parts, says in [
        ([nines, nines], ("null", True)),
        ([nines, "1", "-1"], (nines, False)),
        ([nines, nines, f"-{nines}"], (nines, False)),
        ([f"{'9' * 36}.99", "0.01"], ("null", True)),
    ]:
        whole = reduce(partial(merged, "sum"), parts)
        assert (AGGREGATES["sum"].finish(whole), AGGREGATES["sum"].is_cut(whole)) == says
        mean = reduce(partial(merged, "avg"), [[part, 1] for part in parts])
        assert AGGREGATES["avg"].is_cut(mean) is says[1]
        assert (AGGREGATES["avg"].finish(mean) == "null") is says[1]


def test_a_set_that_is_too_large_is_cut_the_same_way_in_any_order() -> None:
    texts = [json.dumps(f"{n:05}") for n in range(3 * SET_MAX)]
    parts = [
        {"v": kept, "cut": is_cut}
        for kept, is_cut in (kept_of(set(texts[at::7])) for at in range(7))
    ]
    whole = reduce(partial(merged, "collect_set"), parts)
    assert whole["cut"]
    assert whole["v"] == texts[:SET_MAX]
    assert AGGREGATES["collect_set"].is_cut(whole)
    kept, is_cut = kept_of({"x" * 20_000, "y" * 20_000})
    assert (len(kept), is_cut) == (1, True)


def test_of_very_many_values_those_seen_most_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "TOP_KEPT", 10)
    counts = {str(n): n for n in range(100)}
    part = most_of(counts)
    assert part["cut"]
    assert AGGREGATES["top"].is_cut(part)
    assert json.loads(top_text(part, 2)) == [
        {"value": 99, "count": 99},
        {"value": 98, "count": 98},
    ]


def ranked(value: int) -> int:
    """Rank a value as Spark does, with a hash that is not Spark's."""
    seen = random.Random(value).getrandbits(64)
    rest = seen // REGISTERS
    rank = 55 if rest == 0 else (rest & -rest).bit_length()
    return seen % REGISTERS * RANKS + rank


@pytest.mark.parametrize("count", [0, 1, 100, 1_000, 20_000])
def test_different_values_are_counted_to_within_some_percent(count: int) -> None:
    seen = [ranked(value) for value in range(count)]
    parts = [packed(set(seen[at::3])) for at in range(3)]
    found = come_to("approx_count_distinct", [*parts, parts[0]])
    assert math.isclose(found, count, rel_tol=0.1, abs_tol=1)


def test_values_of_two_kinds_are_put_together_all_the_same() -> None:
    """A changed step may turn a number into a text, or into another number."""
    assert come_to("sum", ["5", 1.5]) == 6.5
    assert come_to("min", ['"a"', "5"]) == 5
    assert come_to("max", ['"a"', "5"]) == "a"


def test_of_many_long_values_those_that_come_often_are_kept() -> None:
    counts = {json.dumps("x" * 1_000 + str(n)): n for n in range(200)}
    part = most_of(counts)
    assert part["cut"]
    assert sum(map(len, part["v"])) <= aggregates.TOP_BYTES
    assert max(counts, key=lambda text: counts[text]) in part["v"]
