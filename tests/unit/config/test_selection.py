"""Conditions choose events by their members; a selection keeps the event's bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.model import ConfigError
from shared.config.selection import Condition, is_wanted, keep

EVENT = b'{"type": "play", "user": {"id": 7, "vip": true, "a/b": null}, "n": 1.0, "t": "true"}'

# condition -> whether EVENT meets it
CONDITIONS: list[tuple[dict[str, Any], bool]] = [
    ({"pointer": "/type", "equals": "play"}, True),
    ({"pointer": "/type", "equals": "pause"}, False),
    ({"pointer": "/user/id", "equals": 7}, True),
    ({"pointer": "/user/id", "equals": "7"}, False),
    ({"pointer": "/user/vip", "equals": True}, True),
    ({"pointer": "/user/vip", "equals": 1}, False),
    ({"pointer": "/n", "equals": 1}, True),
    ({"pointer": "/n", "equals": True}, False),
    ({"pointer": "/user/a~1b", "equals": None}, True),
    ({"pointer": "/nothing", "equals": None}, False),
    ({"pointer": "/type", "one_of": ["pause", "play"]}, True),
    ({"pointer": "/type", "one_of": ["pause", None]}, False),
    ({"pointer": "/nothing", "one_of": [None]}, False),
    ({"pointer": "/user", "exists": True}, True),
    ({"pointer": "/user/a~1b", "exists": True}, True),
    ({"pointer": "/user/name", "exists": True}, False),
    ({"pointer": "/user/name", "exists": False}, True),
    ({"pointer": "/type/deeper", "exists": True}, False),
    ({"pointer": "/type", "prefix": "pl"}, True),
    ({"pointer": "/type", "prefix": "la"}, False),
    ({"pointer": "/user/id", "prefix": "7"}, False),
    ({"pointer": "/nothing", "prefix": ""}, False),
]


@pytest.mark.parametrize(("fields", "is_met"), CONDITIONS, ids=str)
def test_a_condition_is_met_or_not(fields: dict[str, Any], is_met: bool) -> None:  # noqa: FBT001 - a table
    condition = Condition.of(fields)
    assert is_wanted(EVENT, [condition]) is is_met
    assert json.loads(json.dumps(condition.to_fields())) == fields


def test_every_condition_must_be_met() -> None:
    play, seven = Condition("/type", "equals", "play"), Condition("/user/id", "equals", 7)
    assert is_wanted(EVENT, [play, seven])
    assert not is_wanted(EVENT, [play, Condition("/user/id", "equals", 8)])
    assert is_wanted(EVENT, [])


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_is_wanted_and_kept_whole(value: bytes) -> None:
    assert is_wanted(value, [Condition("/type", "equals", "play")])
    assert keep(value, ["/type"]) == value


WRONG: list[Any] = [
    None,
    {},
    {"pointer": "/a"},
    {"pointer": "/a", "equals": 1, "prefix": "a"},
    {"equals": 1, "prefix": "a"},
    {"pointer": "/a", "matches": ".*"},
    {"pointer": "a", "equals": 1},
    {"pointer": "", "equals": 1},
    {"pointer": 5, "equals": 1},
    {"pointer": "/a", "equals": {}},
    {"pointer": "/a", "equals": [1]},
    {"pointer": "/a", "one_of": []},
    {"pointer": "/a", "one_of": "abc"},
    {"pointer": "/a", "one_of": [[1]]},
    {"pointer": "/a", "one_of": list(range(101))},
    {"pointer": "/a", "exists": 1},
    {"pointer": "/a", "prefix": 1},
]


@pytest.mark.parametrize("fields", WRONG, ids=str)
def test_a_condition_that_makes_no_sense_is_refused(fields: Any) -> None:
    with pytest.raises(ConfigError, match=r"^filter"):
        Condition.of(fields)


# event, wanted members -> what is sent
KEPT: list[tuple[bytes, list[str], bytes]] = [
    (b'{"a":1,"b":2}', [], b'{"a":1,"b":2}'),
    (b'{"a":1,"b":2}', ["/b"], b'{"b":2}'),
    (b'{"a":1,"b":2}', ["/b", "/a"], b'{"a":1,"b":2}'),
    (b' { "a" : 1.10 , "b" : "\\u00e9" } ', ["/a", "/b"], b'{"a":1.10,"b":"\\u00e9"}'),
    (b'{"a":{"b":[1, 2],"c":3}}', ["/a/b"], b'{"a":{"b":[1, 2]}}'),
    (b'{"a":{"b":1,"c":3}}', ["/a/b", "/a"], b'{"a":{"b":1,"c":3}}'),
    (b'{"a":{"b":1,"c":3},"d":0}', ["/a", "/a/b"], b'{"a":{"b":1,"c":3}}'),
    (b'{"a":{"c":3}}', ["/a/b"], b'{"a":{}}'),
    (b'{"a":5}', ["/a/b"], b"{}"),
    (b'{"a/b":1,"a~b":2,"ab":3}', ["/a~1b", "/a~0b"], b'{"a/b":1,"a~b":2}'),
    (b'{"\\u0061":1}', ["/a"], b'{"\\u0061":1}'),
    (b'{"n":12345678901234567890123.5e400}', ["/n"], b'{"n":12345678901234567890123.5e400}'),
    (b"{}", ["/a"], b"{}"),
    (b"[1]", ["/a"], b"[1]"),
    (b"null", ["/a"], b"null"),
    # Only a program that bypasses the gateway can write this, which is not JSON. It is sent whole.
    (b"{[1]:2}", ["/a"], b"{[1]:2}"),
    (b"{1:2}", ["/a"], b"{1:2}"),
    (b'{"a"=1}', ["/a"], b'{"a"=1}'),
    (b'{"a"', ["/a"], b'{"a"'),
]


@pytest.mark.parametrize(("value", "pointers", "sent"), KEPT)
def test_what_is_kept_keeps_its_bytes(value: bytes, pointers: list[str], sent: bytes) -> None:
    assert keep(value, pointers) == sent


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from("abc"), json_values),
    st.lists(st.sampled_from(["/a", "/b/c", "/b/a", "/c"]), min_size=1),
)
def test_what_is_kept_is_json_with_the_same_values(
    event: dict[str, Any], pointers: list[str]
) -> None:
    kept = json.loads(keep(json.dumps(event).encode(), pointers))
    for name, value in kept.items():
        if f"/{name}" in pointers:
            assert value == event[name]
        else:
            assert value == {k: v for k, v in event[name].items() if f"/{name}/{k}" in pointers}
    assert all(name in kept for name in event if f"/{name}" in pointers)
