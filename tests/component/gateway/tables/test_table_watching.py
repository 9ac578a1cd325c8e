"""Watchers of a table get each change once, and resume where they were."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.config.configuration import Configuration
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway
from tests.support.gateway.table_fixtures import (
    ROWS,
    TABLES,
    OneProcess,
    table_config,
    table_gateway,
    written_copies,
)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[OneProcess]:
    with written_copies(tmp_path) as found:
        yield found


@pytest.fixture
def config() -> FixedConfig:
    return table_config()


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([table.topic for table in TABLES.values()])


@pytest.fixture
def gateway(
    config: FixedConfig, publisher: FakePublisher, copies: OneProcess
) -> Iterator[RunningGateway]:
    with table_gateway(publisher, config, copies) as running:
        yield running


def events_of(response: httpx.Response, count: int) -> list[tuple[str, int, Any]]:
    """Return the first `count` events, without those that only keep the connection alive."""
    found: list[tuple[str, int, Any]] = []
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        name, _, text = line.partition(": ")
        fields[name] = text
        if not line:
            if fields.get("event") != "as_of" or not found:
                at, data = int(fields["id"]), json.loads(fields["data"])
                found.append((fields["event"], at, data))
            if len(found) >= count:
                return found
    return found


def test_whoever_watches_hears_of_changes_and_goes_on_where_they_were(
    gateway: RunningGateway, copies: OneProcess
) -> None:
    copies.write("customers", ("a", '{"n":1}'), ("b", "{}"))
    later = threading.Timer(
        0.5, lambda: copies.write("customers", ("a", '{"n":\n2}'), ("x", "{}"), ("b", ""))
    )
    later.start()
    with gateway.client.stream("GET", ROWS, params={"watch": 1}, timeout=20) as response:
        assert response.headers["content-type"] == "text/event-stream"
        (_, at, _), *changes = events_of(response, 4)
    later.join()
    assert at == 2
    assert [(kind, at, data["key"], data["row"]) for kind, at, data in changes] == [
        ("row", 3, "a", {"n": 2}),
        ("row", 4, "x", {}),
        ("deleted", 5, "b", None),
    ]
    headers = {"last-event-id": "3"}
    query: dict[str, Any] = {"watch": 1, "prefix": "x"}
    with gateway.client.stream("GET", ROWS, params=query, headers=headers, timeout=20) as response:
        assert [data.get("key") for _, _, data in events_of(response, 2)] == [None, "x"]
    with gateway.client.stream(
        "GET", f"{ROWS}/a", params={"watch": 1, "since": 0}, timeout=20
    ) as response:
        assert [data.get("key") for _, _, data in events_of(response, 2)] == [None, "a"]


def test_a_tenant_has_so_many_who_watch_and_whose_key_is_gone_hears_no_more(
    gateway: RunningGateway, config: FixedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tables.watching._QUIET_S", 0.5)
    with ExitStack() as watching:
        for _ in range(50):
            stream = gateway.client.stream("GET", ROWS, params={"watch": 1}, timeout=20)
            response = watching.enter_context(stream)
        lines = response.iter_lines()
        assert next(lines).startswith("id: ")
        more = gateway.client.get(ROWS, params={"watch": 1})
        assert (more.status_code, more.json()["code"]) == (429, "too_many_watchers")
        config.configuration = Configuration(tables=TABLES)
        assert list(lines) is not None
    config.configuration = Configuration(tables=TABLES)


def test_who_watches_comes_again_elsewhere_when_a_gateway_ends(gateway: RunningGateway) -> None:
    with gateway.client.stream("GET", ROWS, params={"watch": 1}, timeout=20) as response:
        lines = response.iter_lines()
        next(lines)
        app: Any = gateway.server.config.app
        begun_s = time.monotonic()
        app.rows.leave()
        for _ in lines:
            pass
        assert time.monotonic() - begun_s < 10
