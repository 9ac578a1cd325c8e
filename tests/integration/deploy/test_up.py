"""`hifi up` as a person uses it: start, send, look, kill, stop, start again; all of it real.

The tests of one module share one data folder, and run in the order of the file.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.ports import is_free
from deploy.local.stack_settings import StackSettings
from tests.support.deploy.cli_runs import Run, port_options, run
from tests.support.deploy.stack_fixtures import PATIENCE_S, fetch, stack_settings, wait_until

pytestmark = pytest.mark.integration

IS_UP = "Hifi is up after"
# The last line that `hifi up` prints then.
ALL_IS_SAID = "Ctrl-C drains and stops everything."


class Place:
    """One data folder and its ports, with every command that is run on it."""

    def __init__(self, settings: StackSettings, tmp: Path) -> None:
        self.settings = settings
        self.tmp = tmp
        self.running: list[Run] = []
        kafka = f"127.0.0.1:{settings.kafka_port}"
        gateway = f"http://127.0.0.1:{settings.gateway_port}"
        # One variable for each option, so that `hifi doctor` in the same shell looks at the same
        # Hifi.
        self.env = {"HIFI_UP_DATA": str(settings.folder), "HIFI_GATEWAY": gateway} | {
            "HIFI_UP_" + option.removeprefix("--").replace("-", "_").upper(): str(port)
            for option, port in settings.ports()
        }
        self.kafka = {"HIFI_KAFKA": kafka}

    def up(self) -> Run:
        options = ["--data", str(self.settings.folder), *port_options(self.settings)]
        started = Run(
            *("up", *options, "--spark-heap-mb", "512", "--time-scale", "0.02"),
            folder=self.tmp / "runs",
        )
        self.running.append(started)
        return started

    def command(self, *arguments: str, stdin: str = "") -> Run:
        env = self.env if arguments[0] == "doctor" else self.env | self.kafka
        return run(*arguments, folder=self.tmp / "runs", env=env, stdin=stdin)

    def arrived(self) -> int:
        text = fetch(f"http://127.0.0.1:{self.settings.sample_port}/events")
        return int(json.loads(text)["count"])

    def books(self) -> dict[str, Any]:
        answer = json.loads(self.command("status", "--json").out)
        (books,) = answer["books"]
        return dict(books)

    def ports_in_use(self) -> list[int]:
        return [port for _, port in self.settings.ports()]

    def all_ports_are_free(self) -> bool:
        return all(is_free(port) for _, port in self.settings.ports())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, jars_cache: Path) -> Iterator[Place]:
    tmp = tmp_path_factory.mktemp("up")
    living = Place(stack_settings(tmp / "data", jars_cache), tmp)
    try:
        yield living
    finally:
        for started in living.running:
            started.end()


@pytest.fixture(scope="module")
def first(place: Place) -> Run:
    started = place.up()
    started.says(IS_UP, timeout_s=PATIENCE_S)
    started.says(ALL_IS_SAID)
    return started


def test_it_says_where_everything_is(place: Place, first: Run) -> None:
    for port in place.ports_in_use():
        assert f"127.0.0.1:{port}" in first.out
    assert "curl -i http://127.0.0.1:" in first.out
    assert str(place.settings.folder) in first.out


def test_what_is_sent_arrives_and_every_command_sees_it(place: Place, first: Run) -> None:
    assert first.process.poll() is None
    given = "".join(f'{{"id":"e{number}"}}\n' for number in range(120))
    sent = place.command("send", "demo", "--file", "-", "--batch", "50", stdin=given)
    assert (sent.wait(), "They went in 3 requests" in sent.err) == (0, True)
    assert sent.out.startswith("120 accepted, 0 rejected, 0 not known to be stored")
    wait_until(lambda: place.arrived() == 120, what="120 events arrive")
    wait_until(lambda: place.books()["delivered"] == 120, what="the books have them")
    books = place.books()
    assert (books["acked"], books["unaccounted"]) == (120, 0)
    assert books["verdict"] in {"OK", "SLOW"}
    tailed = place.command("tail", "demo", "--from", "1h", "--count", "120", "--json")
    events = [json.loads(line) for line in tailed.out.splitlines()]
    assert {event["data"]["id"] for event in events} == {f"e{n}" for n in range(120)}
    page = fetch(f"http://127.0.0.1:{place.settings.sample_port}/")
    assert "120 <span>events arrived" in page


def test_doctor_finds_nothing_unsafe(place: Place, first: Run) -> None:
    assert first.process.poll() is None
    examined = place.command("doctor", "--json")
    findings = {one["subject"]: one for one in json.loads(examined.out)["findings"]}
    assert [one for one in findings.values() if one["grade"] == "unsafe"] == []
    assert examined.wait() == 0
    assert findings["brokers"]["grade"] == "note"
    assert findings["eligible leader replicas"]["grade"] == "good"
    for port in place.ports_in_use():
        assert findings[f"port {port}"]["says"].startswith("held by Hifi itself")


def test_a_second_one_is_refused_and_harms_nothing(place: Place, first: Run) -> None:
    second = place.up()
    assert second.wait() == 1
    assert f"(process {first.process.pid})" in second.err
    second.leaves_nothing()
    assert first.process.poll() is None


def test_what_is_killed_is_started_again_and_said(place: Place, first: Run) -> None:
    # Kill all three at once: none needs another one to come back.
    for what, name in (
        # A blank after the name: delivery's workers are another module of the same package.
        ("-m gateway ", "gateway"),
        ("-m delivery ", "delivery"),
        ("kafka.Kafka", "Kafka broker 1"),
    ):
        os.kill(first.child(what), signal.SIGKILL)
        first.says(f"{name} was ended by SIGKILL and is started again")

    def is_back() -> bool:
        answer = json.loads(place.command("status", "--json").out)
        return answer["kafka"] and all(answer["services"].values())

    wait_until(is_back, what="all services are ready again", timeout_s=PATIENCE_S)
    assert place.command("send", "demo", '{"id":"after"}').wait() == 0
    wait_until(lambda: place.arrived() == 121, what="the next event arrives")


def test_what_dies_again_and_again_waits_longer_and_stops_nothing_else(
    place: Place, first: Run
) -> None:
    module = "deploy.local.sample_destination"
    for count in range(1, 5):
        os.kill(first.child(module), signal.SIGKILL)
        if count < 4:
            first.says("sample was ended by SIGKILL and is started again", times=count)
    first.says("sample was ended by SIGKILL, 4 times in ten minutes, and is started again in 5 s")
    assert place.command("send", "demo", '{"id":"meanwhile"}').wait() == 0
    overview = fetch(f"http://127.0.0.1:{place.settings.console_port}/")
    assert "ample was ended by SIGKILL, 4 times in ten minutes" in overview
    # The sample destination counts from its last start only.
    events = f"http://127.0.0.1:{place.settings.sample_port}/events"
    wait_until(
        lambda: '"count":1,' in fetch(events).replace(" ", ""),
        what="the sample destination is back",
    )


def test_ctrl_c_drains_and_leaves_nothing(place: Place, first: Run) -> None:
    first.send(signal.SIGINT)
    assert first.wait() == 0
    assert first.out.endswith(f"Everything has stopped; the data is in {place.settings.folder}.\n")
    assert first.err == ""
    first.leaves_nothing()
    assert place.all_ports_are_free()


def test_the_next_start_finds_its_data_and_delivers_nothing_twice(place: Place) -> None:
    again = place.up()
    again.says(IS_UP, timeout_s=PATIENCE_S)
    assert place.books()["delivered"] == 122
    assert place.command("send", "demo", '{"id":"new"}').wait() == 0
    wait_until(lambda: place.arrived() >= 1, what="the new event arrives")
    wait_until(lambda: place.books()["delivered"] == 123, what="the books have the event")
    # The sample destination counts from its own start: only the new event arrived.
    assert place.arrived() == 1
    # After kill -9 only the kernel can clean up.
    again.send(signal.SIGKILL)
    again.wait()
    # A JVM whose options ask for a class archive writes it before it ends.
    again.leaves_nothing(timeout_s=PATIENCE_S / 2)
    assert place.all_ports_are_free()


@pytest.mark.parametrize("phase", ["starting Kafka", "making topics", "starting delivery"])
def test_a_signal_at_any_moment_of_the_start_leaves_nothing(place: Place, phase: str) -> None:
    started = place.up()
    started.says(phase)
    started.send(signal.SIGTERM)
    # People in a hurry ask twice.
    started.send(signal.SIGHUP)
    assert started.wait() == 130
    assert "Interrupted while starting: everything has stopped." in started.out
    assert "Traceback" not in started.err
    started.leaves_nothing()
    assert place.all_ports_are_free()
