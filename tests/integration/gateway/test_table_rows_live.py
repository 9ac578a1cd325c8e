"""Rows on a running Hifi: written over HTTP, and returned by its gateway in the promised time."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from threading import Thread

import httpx
import pytest

from tests.support.deploy.stack_fixtures import RunningHifi, wait_until

pytestmark = pytest.mark.integration

# The promise is 2 s for 99 of 100; this machine has other work.
USED_WITHIN_S = 5.0
TABLE = "/live-rows"
ROWS = f"{TABLE}/rows"


@pytest.fixture
def rows(hifi: RunningHifi) -> Iterator[httpx.Client]:
    """Return a client for a table that only this test uses."""
    with httpx.Client(base_url=f"{hifi.gateway}/v1/tables", timeout=30) as client:
        made = client.put(TABLE, json={})
        assert made.status_code in {200, 201}, made.text
        wait_until(lambda: client.get(ROWS).status_code == 200, what="the table has a copy")
        yield client
        assert client.delete(TABLE).status_code == 204


def test_rows_are_written_changed_read_watched_and_deleted(rows: httpx.Client) -> None:
    lines = "\n".join(f'{{"key": "c-{n}", "row": {{"n": {n}}}}}' for n in range(100))
    stored = rows.post(ROWS, content=lines).json()
    assert stored["accepted"] == 100
    there = rows.get(f"{ROWS}/c-7", params={"at_least": stored["offset"]})
    assert there.json()["row"] == {"n": 7}
    page = rows.get(ROWS, params={"prefix": "c-9", "limit": 5}).json()
    assert [row["key"] for row in page["rows"]] == ["c-9", "c-90", "c-91", "c-92", "c-93"]
    slowest = 0.0
    for value in range(20):
        written = rows.put(f"{ROWS}/c-7", json={"n": value}).json()
        began_s = time.monotonic()
        changed = rows.get(f"{ROWS}/c-7", params={"at_least": written["offset"]}).json()
        slowest = max(slowest, time.monotonic() - began_s)
        assert changed["row"] == {"n": value}
        assert changed["as_of"]["age_ms"] < 5_000
    assert slowest < USED_WITHIN_S
    heard: list[str] = []

    def watch() -> None:
        with (
            contextlib.suppress(httpx.HTTPError),
            rows.stream("GET", ROWS, params={"watch": 1}) as response,
        ):
            for line in response.iter_lines():
                heard.append(line)
                if line == "event: deleted":
                    return

    watching = Thread(target=watch)
    watching.start()
    wait_until(lambda: bool(heard), what="the client watches")
    assert rows.delete(f"{ROWS}/c-7").status_code == 200
    watching.join(timeout=30)
    assert "event: deleted" in heard
    assert rows.get(f"{ROWS}/c-7").status_code == 404


def test_rows_are_answered_while_who_follows_them_is_killed(
    hifi: RunningHifi, rows: httpx.Client
) -> None:
    stored = rows.put(f"{ROWS}/a", json={"n": 1}).json()
    assert rows.get(f"{ROWS}/a", params={"at_least": stored["offset"]}).status_code == 200
    owner = hifi.stack.settings.folder / "tables" / "follower" / "owner.lock"
    for _ in range(2):
        os.kill(int(owner.read_text()), signal.SIGKILL)
        until_s = time.monotonic() + 0.5
        while time.monotonic() < until_s:
            assert rows.get(f"{ROWS}/a").status_code == 200
        stored = rows.put(f"{ROWS}/a", json={"n": 2}).json()

        def has_it(offset: int = stored["offset"]) -> bool:
            return rows.get(f"{ROWS}/a", params={"at_least": offset}).status_code == 200

        wait_until(has_it, what="a process follows again")
