"""Takes a picture of every page of the console, from a live run with real traffic: `make shots`.

Starts all of Hifi on free ports in a temporary folder, sends events that succeed, that fail once
and that fail for good, and stops it all again. The pictures go to build/shots.
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from deploy.local.stack import Stack
from shared.destination import Destination
from shared.runtime.jars import default_cache, ensure_jars
from tests.browser import MISSING, Browser, Tab, chromium
from tests.stack_fixtures import RunningHifi, stack_settings, wait_until

FOLDER = Path(__file__).parents[1] / "build" / "shots"
STREAMS = ("orders", "players")
# Long enough that lag over time has a shape and a minute has settled.
TRAFFIC_S = 100.0
LOOKS: Mapping[str, Mapping[str, Any]] = {
    "light": {},
    "dark": {"scheme": "dark"},
    "phone": {"width": 390, "height": 844, "is_phone": True},
}
PAGES = {
    "overview": "/",
    "stream": "/streams/orders",
    "destination": "/streams/orders/billing",
    "destinations": "/destinations",
    "dead": "/dead",
    "redrive": "/dead/redrive?stream=orders",
    "event": "/events?stream=orders&id=late-3",
    "event-dead": "/events?stream=orders&id=bad-3",
    "keys": "/keys",
    "not-here": "/streams/nothing",
}


def main() -> None:
    program = chromium()
    if program is None:
        sys.exit(f"make shots: {MISSING}")
    cache = default_cache()
    for jars in ("broker", "spark"):
        ensure_jars(jars, cache=cache)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser(program) as browser:
        # In real time: seconds of retries would look like nothing that anybody sees.
        settings = replace(stack_settings(Path(folder), cache), time_scale=0.2)
        stack = Stack(settings, environ=os.environ, say=_say)
        stack.start(lambda _: None)
        try:
            send_traffic(RunningHifi(stack))
            console = f"http://127.0.0.1:{settings.console_port}"
            for look, options in LOOKS.items():
                with browser.page(**options) as tab:
                    take(tab, console, look)
        finally:
            stack.stop()
    sys.stdout.write(f"{len(PAGES) * len(LOOKS)} pictures are in {FOLDER}\n")


def send_traffic(hifi: RunningHifi) -> None:
    """Two streams: all well, and one whose destinations refuse, stumble, and are away."""
    sample = f"http://127.0.0.1:{hifi.stack.settings.sample_port}/"
    for stream, name, url in (
        ("orders", "billing", sample),
        ("orders", "lake", "http://127.0.0.1:9/"),
        ("players", "stats", sample),
    ):
        hifi.add(Destination(stream, name, url))
    httpx.put(f"{hifi.gateway}/v1/keys/ops", json={"scopes": ["read", "admin"]}, timeout=30)
    httpx.put(f"{hifi.gateway}/v1/keys/shop", json={"scopes": ["write"]}, timeout=30)
    until_s = time.monotonic() + TRAFFIC_S
    number = 0
    while time.monotonic() < until_s:
        for stream in STREAMS:
            events: list[dict[str, object]] = [
                {"id": f"{stream}-{number}-{at}", "amount": at, "note": "an order"}
                for at in range(40)
            ]
            if number % 5 == 3:
                events.append({"id": f"bad-{number}", "answer_always": 400})
                events.append({"id": f"late-{number}", "answer_once": 503})
            answer = hifi.post(stream, events)
            assert answer.status_code == httpx.codes.OK, answer.text
        number += 1
        time.sleep(0.25)
    wait_until(lambda: hifi.balance("orders/billing").dead > 0, what="something is dead")


def take(tab: Tab, console: str, look: str) -> None:
    for name, path in PAGES.items():
        tab.open(console + path)
        (FOLDER / f"{name}-{look}.png").write_bytes(tab.picture())


def _say(what: str) -> None:
    sys.stderr.write(f"{what} ...\n")


if __name__ == "__main__":
    main()
