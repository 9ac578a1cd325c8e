"""Takes a picture of every page of the console, from a live run with real traffic: `make shots`.

Starts all of Hifi on free ports in a temporary folder, with destinations in every state. Sends
events that succeed, that fail once and that fail for good, loses some, and stops it all again. The
pictures go to build/shots, and those that the documentation shows to docs/pictures.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from deploy.local.stack import Stack
from shared.config.destination import Destination
from shared.config.pipeline import Pipeline
from shared.event.record import RecordOut
from shared.event.times import MINUTE_MS, minute_of
from shared.event.topics import ACKED, stream_topic
from shared.proof.acked import AckedRow, AckedSlice
from shared.runtime.clock import now_ms
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.jars import ensure_jars
from tests.support.console.browser import CHROMIUM, Browser, Tab
from tests.support.deploy.stack_fixtures import (
    QUICK_INTERVALS,
    RunningHifi,
    fetch,
    stack_settings,
    wait_until,
)
from tests.support.kafka.kafka_log import write_rows
from tests.support.pipelines.pipeline_runs import document, put
from tests.support.servers.scripted_destination import Reply, scripted_destination

FOLDER = Path(__file__).parents[3] / "build" / "shots"
STREAMS = ("orders", "players")
# Long enough for a curve of the lag, and for a minute to be complete.
TRAFFIC_S = 100.0
# How many minutes the heat map shows, and which of them has lost events.
MINUTES_BACK = 20
LOST_MINUTE = 7
# The documentation shows the upper part of these pages.
DOCUMENTED = {"overview": "overview", "destination-open": "failing"}
DOCUMENTED_PX = 700
LOOKS: Mapping[str, Mapping[str, Any]] = {
    "light": {},
    "dark": {"scheme": "dark"},
    "phone": {"width": 390, "height": 844, "is_phone": True},
}
PAGES = {
    "overview": "/",
    "stream": "/streams/orders",
    "destination": "/streams/orders/billing",
    "destination-held": "/streams/orders/crm",
    "destination-open": "/streams/orders/lake",
    "losing": "/streams/trades/ledger",
    "destinations": "/destinations",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/large-orders",
    "pipeline-refused": "/pipelines/wrong",
    "dead": "/dead",
    "dead-letters": "/dead/letters",
    "resume": "/destinations/resume?stream=orders&destination=crm",
    "redrive": "/dead/redrive?stream=orders",
    "event": "/events?stream=orders&id=late-3",
    "find": "/events",
    "event-dead": "/events?stream=orders&id=bad-3",
    "tenants": "/tenants",
    "tenant": "/tenants/default",
    "keys": "/keys",
    "channels": "/channels",
    "channel-new": "/channels/new",
    "changes": "/changes",
    "not-here": "/streams/nothing",
}


def main() -> None:
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        sys.exit("make shots needs Chromium: apt install chromium")
    cache = default_cache()
    for jars in ("broker", "spark"):
        ensure_jars(jars, cache=cache)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser(program) as browser:
        # With longer waits: retries within seconds would look unrealistic.
        settings = replace(stack_settings(Path(folder), cache), time_scale=0.2)
        stack = Stack(settings, environ={**os.environ, **QUICK_INTERVALS}, say=_say)
        stack.start(lambda _: None)
        try:
            hifi = RunningHifi(stack)
            console = f"http://127.0.0.1:{settings.console_port}"
            with troubled(hifi):
                send_traffic(hifi)
                for look, options in LOOKS.items():
                    with browser.page(**options) as tab:
                        take(tab, console, look)
        finally:
            stack.stop()
    sys.stdout.write(f"{len(PAGES) * len(LOOKS)} pictures are in {FOLDER}\n")


@contextmanager
def troubled(hifi: RunningHifi) -> Iterator[None]:
    """Add destinations in every state of a page: well, away, refusing, throttling, paused."""
    sample = f"http://127.0.0.1:{hifi.stack.settings.sample_port}/"
    refuses = scripted_destination(lambda _, __: Reply(status=401))
    throttles = scripted_destination(lambda _, __: Reply(status=429, headers={"Retry-After": "20"}))
    with refuses as crm, throttles as ads:
        for destination in (
            Destination("orders", "billing", sample),
            Destination("orders", "lake", "http://127.0.0.1:9/"),
            Destination("orders", "crm", crm.url, hold_on_rejects=True),
            Destination("players", "stats", sample),
            Destination("players", "ads", ads.url),
            Destination("trades", "ledger", sample),
        ):
            hifi.add(destination)
        hifi.change(Destination("players", "old", sample, is_paused=True))
        put(hifi.kafka, *drawn_pipelines())
        yield


def drawn_pipelines() -> list[Pipeline]:
    """Create one pipeline that runs, and one that is refused."""
    large = document(
        "large-orders",
        "orders",
        schema="id STRING, amount BIGINT, note STRING",
        steps=[
            {"where": "amount >= 20"},
            {"select": {"id": "id", "cents": "amount * 100"}},
            {"key": "id"},
        ],
        to=[{"stream": "huge", "when": "cents > 3500"}, {"stream": "large"}],
        match="first",
    )
    wrong = document(
        "wrong",
        "orders",
        schema="amount BIGINT",
        steps=[{"where": "amont > 20"}],
        to=[{"stream": "large"}],
    )
    return [large, wrong]


def send_traffic(hifi: RunningHifi) -> None:
    """Send events; all goes well except for some bad destinations, and events that Kafka lost."""
    httpx.put(f"{hifi.gateway}/v1/keys/ops", json={"scopes": ["read", "admin"]}, timeout=30)
    httpx.put(f"{hifi.gateway}/v1/keys/shop", json={"scopes": ["write"]}, timeout=30)
    # Devices were offline for a while, so the heat map has more than the last minutes.
    began_ms = now_ms()
    for stream in (*STREAMS, "trades"):
        for minute in range(1, MINUTES_BACK):
            time_ms = began_ms - minute * MINUTE_MS
            hifi.post(
                stream,
                [{"id": f"{stream}-m{minute}-{at}", "time_ms": time_ms} for at in range(40)],
            )
    lose(hifi, minute_ms=minute_of(began_ms) - LOST_MINUTE * MINUTE_MS)
    until_s = time.monotonic() + TRAFFIC_S
    number = 0
    while time.monotonic() < until_s:
        for stream in STREAMS:
            events: list[dict[str, object]] = [
                {"id": f"{stream}-{number}-{at}", "amount": at, "note": "an order"}
                for at in range(40)
            ]
            if stream == "orders" and number % 5 == 3:
                events.append({"id": f"bad-{number}", "answer_always": 400})
                events.append({"id": f"late-{number}", "answer_once": 503})
            answer = hifi.post(stream, events)
            assert answer.status_code == httpx.codes.OK, answer.text
        number += 1
        time.sleep(0.25)
    wait_until(lambda: hifi.balance("orders/billing").dead > 0, what="there is a dead letter")
    console = f"http://127.0.0.1:{hifi.stack.settings.console_port}"
    losing = f"{console}/streams/trades/ledger"
    wait_until(lambda: ">LOSING<" in fetch(losing), what="the audit has found the losses")


def lose(hifi: RunningHifi, *, minute_ms: int) -> None:
    """Fake a broker's lost disk: three events are in the gateway's ledger, and not in the log."""
    topic = stream_topic("trades")
    hifi.wait_for_balance(
        "trades/ledger",
        lambda b: b.delivered == 40 * (MINUTES_BACK - 1),
        what="all events are delivered",
    )
    end = max(record.offset for record in hifi.records(topic) if record.partition == 0) + 1
    row = AckedRow(
        topic=topic,
        partition=0,
        slices=(AckedSlice(end, ((3, minute_ms),), minute_ms + 900),),
        ids=("trade-1", "trade-2", "trade-3"),
    )
    asyncio.run(write_rows(hifi.kafka, [RecordOut(ACKED, row.topic.encode(), row.to_bytes())]))


def take(tab: Tab, console: str, look: str) -> None:
    for name, path in PAGES.items():
        tab.open(console + path)
        (FOLDER / f"{name}-{look}.png").write_bytes(tab.picture())
        if look == "light" and name in DOCUMENTED:
            shown = FOLDER.parents[1] / "docs" / "pictures" / f"{DOCUMENTED[name]}.png"
            shown.write_bytes(tab.picture(height_max=DOCUMENTED_PX))


def _say(what: str) -> None:
    sys.stderr.write(f"{what} ...\n")


if __name__ == "__main__":
    main()
