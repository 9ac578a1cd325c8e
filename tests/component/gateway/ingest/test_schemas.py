"""Schemas and events designed to keep a gateway busy delay only their own sender."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from gateway.intake import schemas
from gateway.intake.events import Event, ParsedBody
from gateway.intake.schemas import SchemaChecks
from gateway.problems import Problem
from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway


def levels(count: int, wrap: str, *, last: Any = True, **more: Any) -> dict[str, Any]:
    """Return a schema whose levels each name the next one twice: 2 to the power `count` steps."""
    names = [f"#/$defs/d{level + 1}" for level in range(count)]
    both = {f"d{level}": {wrap: [{"$ref": name}] * 2, **more} for level, name in enumerate(names)}
    return {"$ref": "#/$defs/d0", "$defs": {**both, f"d{count}": last}}


def choices(count: int) -> dict[str, Any]:
    names = [f"#/$defs/d{level + 1}" for level in range(count)]
    each = {
        f"d{level}": {"if": {"$ref": name}, "then": {"$ref": name}}
        for level, name in enumerate(names)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**each, f"d{count}": True}}


def nested(depth: int, wrap: str) -> Any:
    value: Any = {"k": 3}
    for _ in range(depth):
        value = {"k": 2, wrap: [value]}
    return value


def named(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def either(*, word: str) -> dict[str, Any]:
    """Return a recursive schema of two kinds, both of which are tried on each level."""
    kinds = [{"properties": {"a": {"items": {"$ref": "#"}}, "k": {"const": k}}} for k in (1, 2)]
    return {word: kinds}


OBJECTS = [{"k": n} for n in range(8_000)]
HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "all of two": (levels(40, "allOf"), {}),
    "any of two": (levels(40, "anyOf", last=False), {}),
    "one of two": (levels(40, "oneOf"), {}),
    "if and then": (choices(40), {}),
    "an expression of any kind": (either(word="anyOf"), nested(45, "a")),
    "an expression of one kind": (either(word="oneOf"), nested(45, "a")),
    "a long list of objects": ({"items": {"enum": OBJECTS}}, OBJECTS[::-1]),
    "a pattern of many states": ({"pattern": "^(?:.{0,500}){20}y$"}, "abcdefgh1" * 3_000),
    "many patterns for many names": (
        {"patternProperties": {f"^(?:a|b)*{n}$": {} for n in range(1_000)}},
        {f"{'ab' * 100}{n}": 1 for n in range(1_000)},
    ),
    "a name and its pattern": (
        {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"^a$": {"$ref": "#"}}},
        named(60),
    ),
}


LEVELS = {"$ref": "#/$defs/d0", "$defs": levels(40, "allOf")["$defs"]}
# Only events with a `v` are slow to check.
SOMETIMES = {
    "if": {"required": ["v"]},
    "then": {"$ref": "#/$defs/d0"},
    "$defs": LEVELS["$defs"],
    "properties": {"price": {"type": "number"}},
}


def checked(schema: Any, *values: Any) -> tuple[ParsedBody, int]:
    """Return the remaining events, and how often other tasks ran in the loop meanwhile."""

    async def check() -> tuple[ParsedBody, int]:
        events = [
            Event.of(id=f"{index}", key=None, value=json.dumps(value).encode(), headers=())
            for index, value in enumerate(values)
        ]
        parsed, turns = ParsedBody(events, range(len(events)), prefix="/"), 0
        with contextlib.closing(SchemaChecks()) as checks:
            keeping = checks.keep_fitting(parsed, json.dumps(schema), tenant="acme")
            task = asyncio.create_task(keeping)
            while not task.done():
                await asyncio.sleep(0.001)
                turns += 1
            await task
        return parsed, turns

    return asyncio.run(check())


@pytest.mark.parametrize(("schema", "value"), HOSTILE.values(), ids=HOSTILE)
def test_an_event_that_cannot_be_judged_in_its_time_is_rejected(
    schema: dict[str, Any], value: Any
) -> None:
    parsed, turns = checked(schema, value)
    (rejection,) = parsed.rejections
    assert (rejection.code, rejection.pointer) == ("schema_violation", "/0")
    assert "it takes more than 0.1 s" in rejection.detail
    # A blocked loop would give them one or two turns.
    assert turns > 10


def test_it_spoils_no_neighbour() -> None:
    values = [{"price": 1}, {"v": 1}, {"price": "x"}, {"v": 2}, {"price": 2}]
    parsed, _ = checked(SOMETIMES, *values)
    assert [event.id for event in parsed.events] == ["0", "4"]
    assert [(each.id, each.pointer) for each in parsed.rejections] == [
        ("1", "/1"),
        ("2", "/2/price"),
        ("3", "/3"),
    ]


def test_many_events_are_judged_in_their_order() -> None:
    values = [{"price": "x" * 40_000 if n % 7 == 0 else n} for n in range(300)]
    parsed, _ = checked(SOMETIMES, *values)
    assert [each.index for each in parsed.rejections] == list(range(0, 300, 7))
    assert [event.id for event in parsed.events] == [f"{n}" for n in range(300) if n % 7]


def test_no_event_is_blamed_for_a_process_that_somebody_else_has_ended() -> None:
    async def check() -> int:
        parsed = ParsedBody([Event.of(id="a", key=None, value=b"{}", headers=())], range(1))
        with contextlib.closing(SchemaChecks()) as checks:
            await checks.keep_fitting(parsed, "{}", tenant="acme")
            assert checks._process is not None
            checks._process._process.kill()
            with pytest.raises(Problem, match="cannot be checked"):
                await checks.keep_fitting(parsed, "{}", tenant="acme")
            await checks.keep_fitting(parsed, "{}", tenant="acme")
        assert parsed.rejections == []
        return len(parsed.events)

    assert asyncio.run(check()) == 1


STREAMS = {
    "plain": Stream("plain"),
    "typed": Stream("typed", json_schema=json.dumps(SOMETIMES)),
    "dear": Stream("dear", tenant="acme", json_schema=json.dumps(SOMETIMES)),
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    publisher = FakePublisher([stream_topic(name) for name in STREAMS])
    keys = {name: key(name, tenant=name) for name in ("acme", "default")}
    config = FixedConfig(Configuration(streams=STREAMS, keys=keys))
    with running_gateway(publisher, config, Settings(auth="keys")) as running:
        yield running


def key(name: str, *, tenant: str) -> ApiKey:
    secret = secret_from(text_of(name), signs=False)
    return ApiKey(name, (secret,), scopes=frozenset({"write", "admin"}), tenant=tenant)


def text_of(name: str) -> str:
    return new_text(kind="secret", key_id=name, entropy=name.ljust(20).encode())


def send(gateway: RunningGateway, tenant: str, stream: str, events: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {text_of(tenant)}"}
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        return client.post(f"/v1/streams/{stream}/events", json=events, headers=headers)


def test_other_tenants_wait_for_none_of_it(gateway: RunningGateway) -> None:
    with ThreadPoolExecutor() as pool:
        dear = pool.submit(send, gateway, "acme", "dear", [{"price": 1}, *[{"v": 1}] * 6])
        for stream in ("plain", "typed", "typed"):
            assert send(gateway, "default", stream, [{"price": 1}]).status_code == 200
        assert not dear.done()
        assert dear.result().json()["accepted"] == 1


def test_a_request_that_cannot_be_judged_in_time_is_503_and_the_next_one_is_served(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(schemas, "_CHECK_S_MAX", 0.05)
        for _ in range(5):
            answer = send(gateway, "acme", "dear", [{"v": 1}])
            assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
            assert answer.headers["retry-after"]
    assert send(gateway, "acme", "dear", [{"price": 1}]).status_code == 200


def put(gateway: RunningGateway, schema: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {text_of('acme')}"}
    return gateway.client.put("/v1/streams/new", json={"schema": schema}, headers=headers)


@pytest.mark.parametrize(
    "schema",
    [
        # Unevaluated properties are computed beforehand, by following every path.
        levels(40, "anyOf", unevaluatedProperties=False),
        {"allOf": [{"pattern": f"(?:.{{0,500}}){{20}}{n}$"} for n in range(300)]},
    ],
)
def test_a_schema_that_takes_for_ever_to_prepare_is_refused(
    gateway: RunningGateway, schema: Any
) -> None:
    answer = put(gateway, schema)
    assert (answer.status_code, answer.json()["pointer"]) == (400, "/schema")
    assert "preparing it takes more than 0.25 s" in answer.json()["detail"]
    assert put(gateway, {"type": "object"}).status_code < 300


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"properties": {"v": {"uniqueItems": True}}},
    ],
)
def test_what_only_looks_dear_is_not(schema: Any) -> None:
    parsed, _ = checked(schema, {"v": [{"n": n} for n in range(10_000)]})
    assert len(parsed.events) == 1
