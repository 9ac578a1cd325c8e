"""Events are the same JSON with msgspec and without."""

import json
import math
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest

from hifi_client.sending.json_writer import fast_writer, plain_writer, write_json

PLAIN, FAST = plain_writer(), fast_writer()


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
    assert FAST is not None
    assert write_json.__qualname__ == FAST.__qualname__, "msgspec is installed, and not used"
    plain, fast = PLAIN({"id": "a", "n": value}), FAST({"id": "a", "n": value})
    assert json.loads(fast) == json.loads(plain)
    assert b"\n" not in fast
    assert b"\r" not in fast


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, [1, {"a": math.nan}], "\ud800", object(), {(1, 2): 3}]
)
@pytest.mark.parametrize("beside", [1, None])
def test_what_json_has_not_is_refused_by_both(value: Any, beside: Any) -> None:
    assert FAST is not None
    for write in (PLAIN, FAST):
        with pytest.raises((ValueError, TypeError)):
            write({"n": value, "m": beside})


@pytest.mark.parametrize("beside", [1, None])
def test_msgspec_takes_what_it_knows_besides(beside: Any) -> None:
    assert FAST is not None
    line = FAST({"n": UUID(int=1), "m": beside})
    assert json.loads(line) == {"n": "00000000-0000-0000-0000-000000000001", "m": beside}
    with pytest.raises(TypeError, match="UUID is nothing that JSON has"):
        PLAIN({"n": UUID(int=1), "m": beside})
