"""The observe process over a real Kafka in a real browser: books, an event's way, redrive, top.

The test writes the records of the lanes by hand, so that no Spark has to start.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.proof.receipt import ReceiptOutcome
from tests.integration.gateway.test_replays import carry_out, queued
from tests.integration.observe.test_console_kafka import dies, event, outcome, stored, waits, write
from tests.support.console.browser import Browser, Tab
from tests.support.deploy.stack_fixtures import fetch, wait_until
from tests.support.gateway.gateway_process import running as gateway_running
from tests.support.kafka.config_records import write_config

pytestmark = pytest.mark.integration

STREAM = "seen"
# The handwritten records use this name.
DESTINATION = f"{STREAM}/to"
CONFIGURED = Configuration(
    streams={STREAM: Stream(STREAM)},
    destinations={DESTINATION: Destination(STREAM, "to", "https://to.example/hook")},
)


@pytest.fixture
def ports() -> list[int]:
    """Return ports for observe's metrics and its console."""
    return pick_free(2)


@pytest.fixture
def console(kafka: Cluster, tmp_path: Path, ports: list[int]) -> Iterator[str]:
    """Run `python -m observe` beside a gateway, after some traffic; yield its console's URL."""
    events = [event(STREAM, number) for number in range(22)]
    late, dead = events[20:]
    write(
        kafka,
        STREAM,
        [
            *map(stored, events),
            outcome(events[:20], ReceiptOutcome.DELIVERED, attempt=1),
            outcome([late], ReceiptOutcome.WAITING, attempt=1),
            waits(late),
            outcome([late], ReceiptOutcome.DELIVERED, attempt=2),
            outcome([dead], ReceiptOutcome.DEAD, attempt=1),
            dies(dead),
        ],
    )
    known = [*CONFIGURED.streams.values(), *CONFIGURED.destinations.values()]
    asyncio.run(write_config(kafka.bootstrap_servers, known))
    metrics_port, port = ports
    settings = {
        "BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "FOLDER": str(tmp_path / "observe"),
        "IS_AUDIT_ON": "false",
        "CONSOLE_AUTH": "off",
        "METRICS_PORT": str(metrics_port),
        "CONSOLE_PORT": str(port),
    }
    with gateway_running(kafka.bootstrap_servers) as gateway:
        settings["CONSOLE_GATEWAY"] = gateway.url
        yield from _console(settings, tmp_path, url=f"http://127.0.0.1:{port}")


def _console(settings: dict[str, str], tmp_path: Path, *, url: str) -> Iterator[str]:
    env = os.environ | {f"HIFI_OBSERVE_{name}": value for name, value in settings.items()}
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen([sys.executable, "-m", "observe"], env=env, stderr=log)
    try:
        wait_until(
            lambda: DESTINATION in fetch(f"{url}/api/overview"),
            what=lambda: (
                f"observe has seen the stream; its log: {(tmp_path / 'log').read_text()[-800:]}"
            ),
        )
        yield url
        running.terminate()
        assert running.wait(30) == 0, "it exited with an error"
    finally:
        running.kill()
        running.wait(30)


def test_the_console_tells_the_whole_story(console: str, browser: Browser) -> None:
    with browser.page() as tab:
        tab.open(f"{console}/streams/{DESTINATION}")
        figures = "document.querySelector('.figures').innerText.replace(/\\s+/g, ' ')"
        # The page is live: nobody reloads it.
        tab.wait_for(f"{figures}.includes('delivered 21')", what="its books are there")
        told = tab.run(figures)
        for part in ("acknowledged 22", "queued 0", "dead letters 1", "unaccounted 0"):
            assert part in told
        assert "https://to.example/hook" in tab.text("main")

        late = way_of(tab, console, "e20")
        assert late.index("Stored in Kafka") < late.index("Not delivered to seen/to")
        assert "status_503" in late
        assert "Waits 30 s" in late
        assert "Delivered to seen/to" in late
        assert "Dead letter for seen/to: status_400" in way_of(tab, console, "e21")
        assert "number" not in tab.text("main")
        tab.click_and_load("form[action='/events/payload'] button")
        assert json.loads(tab.text("#payload code")) == {"number": 21}

        tab.open(f"{console}/dead?stream={STREAM}")
        assert "1 dead letter in 1 group." in tab.text("main")
        tab.click_and_load("#list tbody th a")
        assert "1 dead letter matches." in tab.text("main")
        tab.click_and_load("form[action='/dead/redrive'] button")
        assert tab.text("h1") == "Send 1 dead letter again?"
        tab.click_and_load("form[action='/dead/redrive'] button")
        assert "1 sent again." in tab.text("main")
        assert tab.run("document.querySelectorAll('form[action=\"/dead/redrive\"]').length") == 0
        assert "by a person, from dead letters" in way_of(tab, console, "e21")
        tab.click_and_load("form[action='/events/resend'] button")
        assert "Not sent to to: it waits there for its next attempt anyway." in tab.text("main")
        way_of(tab, console, "e0")
        tab.click_and_load("form[action='/events/resend'] button")
        assert "Will be sent again to to within half a minute." in tab.text("main")
        assert "Sent again to seen/to by a person" in tab.text(".timeline")

        tab.open(f"{console}/streams")
        assert tab.run("document.querySelector('#list a[href$=\"/seen\"]').innerText") == STREAM
        tab.click_and_load("#list a[href='/events/newest?stream=seen']")
        assert "partition 0, offset 21" in tab.text("tbody tr")
        assert tab.run("document.querySelectorAll('tbody tr').length") == 22
        # The list shows each event's state, and not its content.
        assert "number" not in tab.text("tbody")
        tab.open(f"{console}/events/newest?stream=seen&contains=%22number%22:%2017%7D")
        assert tab.run("document.querySelectorAll('tbody tr').length") == 1
        tab.click_and_load("tbody a")
        assert "Delivered to seen/to" in tab.text(".timeline")

        # The charts show events once their step is over.
        tab.open(f"{console}/streams/{DESTINATION}?table=throughput")
        total = """[...document.querySelectorAll('#past-throughput td[data-head=delivered]')]
            .reduce((sum, cell) => sum + 10 * (parseFloat(cell.innerText) || 0), 0)"""
        tab.wait_for(f"Math.round({total}) === 21", what="its past is there")

        assert tab.complaints() == []
    tells_the_same(console)


def test_a_replay_is_begun_watched_and_cancelled_on_its_page(
    console: str, kafka: Cluster, browser: Browser
) -> None:
    order = ("--destination", "to", "--from", "2020-01-01T00:00Z")
    to_go, state = "tbody td[data-head='To go']", "tbody td[data-head=State]"
    with browser.page(width=390, scheme="dark", is_phone=True) as tab:

        def begin(rate: str) -> tuple[str, int]:
            """Begin a replay; return its id and event count: each test of this stream writes 22."""
            tab.open(f"{console}/replays/new?stream={STREAM}")
            tab.run("document.querySelector('[name=from]').value = '2020-01-01T00:00'")
            tab.run(f"document.querySelector('[name=rate_per_s]').value = '{rate}'")
            tab.click_and_load("form[action='/replays/new'] button")
            asked = re.fullmatch("Send ([0-9]+) events to to again[?]", tab.text("h1"))
            assert asked
            assert f"hifi replays create {STREAM} {' '.join(order)}" in tab.text("main")
            tab.click_and_load("form[action='/replays/new'] button")
            assert tab.text(to_go) == asked[1]
            return tab.text("tbody th code"), int(asked[1])

        whole, count = begin("1000")
        carry_out(kafka, (STREAM, whole), configuration=CONFIGURED)
        tab.click_and_load(f"nav a[href='/replays?stream={STREAM}']")
        assert (tab.text(state), tab.text(to_go)) == ("done", "0")
        assert tab.text("tbody td[data-head=Queued]") == str(count)
        expected = [f"e{number}" for number in range(22)] * (count // 22)
        assert sorted(queued(kafka, whole)) == sorted(expected)

        slow, _ = begin("1")
        tab.click_and_load("tbody a[href^='/replays/cancel']")
        tab.click_and_load("form[action='/replays/cancel'] button")
        assert (tab.text("tbody th code"), tab.text(state)) == (slow, "cancelled")
        carry_out(kafka, (STREAM, slow), configuration=CONFIGURED)
        assert queued(kafka, slow) == []

        tab.open(f"{console}/changes?kind=stream&name={STREAM}")
        assert "replay cancelled" in tab.text("tbody")
        assert tab.complaints() == []


@pytest.mark.usefixtures("console")
def test_status_reads_no_more_of_kafka_however_much_is_in_it(
    kafka: Cluster, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[int] = []
    take = AIOKafkaConnection._handle_frame

    def count(connection: AIOKafkaConnection, frame: bytes) -> None:
        frames.append(len(frame))
        take(connection, frame)

    monkeypatch.setattr(AIOKafkaConnection, "_handle_frame", count)

    def status(observe_port: int) -> tuple[dict[str, Any], int]:
        """Return its output, and how many bytes Kafka has sent it."""
        frames.clear()
        asked = ["--json", "--kafka", kafka.bootstrap_servers]
        told = CliRunner().invoke(
            app, ["status", *asked, "--observe-metrics-port", str(observe_port)]
        )
        return json.loads(told.stdout), sum(frames)

    def acked(said: dict[str, Any]) -> int:
        (row,) = [row for row in said["books"] if row["stream"] == STREAM]
        return int(row["acked"])

    said, few = status(ports[0])
    assert said["counted_by"] == "observe"
    before = acked(said)
    more = [event(STREAM, number) for number in range(22, 2_022)]
    receipts = [outcome([one], ReceiptOutcome.DELIVERED, attempt=1) for one in more]
    write(kafka, STREAM, [*map(stored, more), *receipts])

    wait_until(
        lambda: acked(status(ports[0])[0]) == before + 2_000, what="observe has seen the events"
    )
    said, many = status(ports[0])
    assert said["counted_by"] == "observe"
    assert many < few + 1_000, "it has read the new records"
    # Without an observer the command counts by itself, which is the cost of reading the log.
    said, all_of_it = status(1)
    assert said["counted_by"] == "status"
    assert all_of_it > many + 100_000


def way_of(tab: Tab, console: str, event_id: str) -> str:
    tab.open(f"{console}/events?stream={STREAM}&id={event_id}")
    return tab.text(".timeline")


def tells_the_same(console: str) -> None:
    """Check `hifi top` after the redrive: the dead letters wait, and are no longer dead."""

    def books() -> dict[str, int]:
        told = CliRunner().invoke(app, ["top", "--console", console, "--json"])
        assert told.exit_code == 0, told.output
        (found,) = [
            one["balance"]
            for stream in json.loads(told.stdout)["streams"]
            for one in stream["destinations"]
            if one["destination_id"] == DESTINATION
        ]
        return dict(found)

    expected = {
        "acked": 22, "delivered": 21, "waiting": 1, "dead": 0, "queued": 0, "unaccounted": 0,
    }  # fmt: skip
    wait_until(lambda: books() == expected, what=lambda: f"the redriven event waits: {books()}")
    shown = CliRunner().invoke(app, ["top", "--console", console, "--once"])
    assert DESTINATION in shown.stdout
