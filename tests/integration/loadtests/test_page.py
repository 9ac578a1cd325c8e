"""Locust's page has our options and our tab, and a step started there is the same."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.console.browser import Browser
from tests.support.deploy.locust_runs import LOCUSTFILE, ROOT
from tests.support.deploy.stack_fixtures import fetch, wait_until
from tests.support.servers.rated_server import running_rated_server

pytestmark = [pytest.mark.integration, pytest.mark.long]


@contextmanager
def page(host: str, *argv: str) -> Iterator[str]:
    """Run Locust with its page, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "locust", "-f", LOCUSTFILE, "-H", host, *argv]
    process = subprocess.Popen(
        [*command, "--web-host", "127.0.0.1", "--web-port", str(port)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: bool(fetch(url)), what="the page is there")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


def verdict_at(url: str) -> str:
    """Return the first line of our tab."""
    stats = httpx.get(f"{url}/stats/requests", timeout=30).json()
    return str(stats["extended_stats"][0]["data"][0]["found"])


def test_a_step_that_is_started_in_the_page_gives_the_same_json(tmp_path: Path) -> None:
    """Issue 16, A7."""
    out = tmp_path / "step.json"
    with running_rated_server() as host, page(host, "--out", str(out)) as url:
        first = fetch(url)
        for option in ("slo_p99_ms", "spacing", "event_bytes"):
            assert option in first, "the option is not a field"
        assert re.search(r"Open loop", first)
        form = {"user_count": "1", "spawn_rate": "1", "host": host, "rate": "80", "batch": "1"}
        asked = httpx.post(
            f"{url}/swarm", data={**form, "duration": "2s", "warm_up": "0s"}, timeout=30
        )
        assert asked.json()["success"], asked.text
        wait_until(lambda: verdict_at(url) == "running", what="the step runs")
        wait_until(out.exists, what="the step has ended")
        found = json.loads(out.read_text())
        shown = httpx.get(f"{url}/open-loop.json", timeout=30).json()
        tab = httpx.get(f"{url}/stats/requests", timeout=30).json()["extended_stats"]
        assert found["offered"] == found["sent"] > 100
        assert shown["due_ms"] == found["due_ms"]
        rows = {row["what"]: row["found"] for row in tab[0]["data"]}
        assert tab[0]["key"] == "open-loop"
        assert rows["Verdict"].startswith(found["verdict"])

        # The tab shows a typing error, and no requests are sent.
        def verdict() -> str:
            # Try again, as Locust accepts no start while its last run is still ending.
            httpx.post(f"{url}/swarm", data={**form, "plan": "leap:1"}, timeout=30)
            return verdict_at(url)

        wait_until(
            lambda: "is not a part of a plan" in verdict(), what="the step is refused", look_s=1
        )


def test_in_a_browser_a_step_is_started_and_its_tab_says_what_came_of_it(browser: Browser) -> None:
    """Issue 16, A7."""
    asked = ("--rate", "80", "--batch", "1", "--duration", "2s", "--warm-up", "0s")
    with (
        running_rated_server() as host,
        page(host, *asked) as url,
        browser.page() as tab,
    ):
        tab.open(url)
        for role, name in (("button", "Start"), ("tab", "Open loop")):
            found = f"[...document.querySelectorAll('{role}, [role={role}]')]"
            found += f".find(each => each.textContent.trim() === '{name}')"
            tab.wait_for(found, what=f"there is {name}")
            tab.run(f"{found}.click()")
        tab.wait_for(
            r"/Verdict\s+(met|broken|invalid)/.test(document.body.innerText)",
            what="there is a verdict",
        )
        shown = tab.text()
        assert tab.complaints() == []
    assert re.search(r"Offered\s+1\d\d of 160 requests", shown)
    assert re.search(r"Time from due\s+p50 [\d.]+, p90", shown)
