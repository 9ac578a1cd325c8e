"""Events are the same JSON with msgspec and without."""

import json
import math
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest
from msgspec import Raw

from hifi_client.sending.json_writer import fast_writers, plain_writer, write_json

PLAIN, WRITERS = plain_writer(), fast_writers()
assert WRITERS is not None
FAST, FAST_MANY = WRITERS


class Name(str):
    __slots__ = ()


class Rank(IntEnum):
    HIGH = 1


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -0.0, 1e16, 5e-324, 2**70, -(2**70), "", 'größe 漢字\u2028\x7f\x00\n"\\',
        "null", [1, [2, {"a": None}]], (1, 2), {1: 2}, {1.5: 2}, {None: 1}, {True: 1}, Name("x"),
        Rank.HIGH, {}, [],
    ],
)  # fmt: skip
def test_what_json_has_is_the_same_value_in_one_line(value: Any) -> None:
    assert write_json.__qualname__ == FAST.__qualname__, "msgspec is installed but not used"
    plain, fast = PLAIN({"id": "a", "n": value}), FAST({"id": "a", "n": value})
    assert json.loads(fast) == json.loads(plain)
    assert b"\n" not in fast
    assert b"\r" not in fast


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, [1, {"a": math.nan}], "\ud800", object(), {(1, 2): 3}]
)
@pytest.mark.parametrize("beside", [1, None])
def test_what_json_has_not_is_refused_by_both(value: Any, beside: Any) -> None:
    for write in (PLAIN, FAST):
        with pytest.raises((ValueError, TypeError)):
            write({"n": value, "m": beside})


@pytest.mark.parametrize("beside", [1, None])
def test_msgspec_takes_what_it_knows_besides(beside: Any) -> None:
    line = FAST({"n": UUID(int=1), "m": beside})
    assert json.loads(line) == {"n": "00000000-0000-0000-0000-000000000001", "m": beside}
    with pytest.raises(TypeError, match="JSON has no UUID"):
        PLAIN({"n": UUID(int=1), "m": beside})


def test_many_are_written_as_each_by_itself() -> None:
    plain: list[dict[str, Any]] = [{"n": 1}, {"n": "a\nb"}, {"n": [2**70]}]
    assert FAST_MANY(plain) == b"".join(FAST(event) + b"\n" for event in plain)
    events: list[dict[str, Any]] = [*plain, {"n": None}, {"n": "null\n"}]
    assert FAST_MANY(events) == [FAST(event) for event in events]
    # An event that msgspec cannot write does not harm the others.
    events.append({None: "größe"})  # type: ignore[dict-item]
    assert FAST_MANY(events) == [FAST(event) for event in events]
    assert FAST_MANY([]) == b""
    without: list[dict[str, Any]] = [{"n": math.nan}, {"n": object()}]
    for wrong in without:
        with pytest.raises((ValueError, TypeError)):
            FAST_MANY([{"n": 1}, wrong])


def test_what_is_given_as_json_cannot_make_two_lines_of_an_event() -> None:
    given: list[dict[str, Any]] = [{"n": 1}, {"n": Raw(b"[1,\n2]")}]
    with pytest.raises(TypeError):
        FAST_MANY(given)
    with pytest.raises(TypeError):
        FAST(given[1])
