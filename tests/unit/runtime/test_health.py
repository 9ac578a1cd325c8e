"""Probes: a process that makes progress is alive, one that can work is ready; each says why not."""

import asyncio
import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from shared.runtime import health as health_module
from shared.runtime.health import Health, Pulse
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import SetupError
from tests.support.deploy.stack_fixtures import wait_until


class Clock:
    """A clock that advances when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(health_module, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def probed(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def test_a_process_is_ready_between_its_start_and_its_stop() -> None:
    health = Health()
    said = [health.problem]
    for change in (health.start, health.stop):
        change()
        said.append(health.problem)
    assert said == ["it is starting", None, "it is stopping"]


def test_who_never_comes_to_its_work_is_not_alive(clock: Clock) -> None:
    health = Health()
    live = health.probes["/livez"]
    clock.now_s += 299
    assert live() == (True, "alive\n")
    clock.now_s += 2
    assert live() == (False, "it has been starting for 301 s\n")
    health.start()
    assert live() == (True, "alive\n")


def test_alive_is_who_turns_each_of_its_loops(clock: Clock) -> None:
    health, quick, slow = Health(), Pulse(), Pulse()
    clock.now_s += 60
    # A loop that began long ago counts from the time at which checking starts.
    health.must_turn("the quick one", quick, within_s=10)
    health.must_turn("the slow one", slow, within_s=30)
    live = health.probes["/livez"]
    assert live() == (True, "alive\n")
    clock.now_s += 11
    assert live() == (False, "the quick one has not turned for 11 s\n")
    quick.beat()
    assert live() == (True, "alive\n")
    clock.now_s += 20
    quick.beat()
    assert live() == (False, "the slow one has not turned for 31 s\n")
    # The process's loops then end one after the other.
    health.stop()
    assert live() == (True, "alive\n")


def test_ready_is_who_has_all_it_needs() -> None:
    health = Health()
    health.start()
    missing: dict[str, str | None] = {"kafka": None, "copies": None}
    health.needs(lambda: None)
    health.needs(lambda: missing["kafka"])
    health.worries(lambda: missing["copies"])
    live, ready = health.probes["/livez"], health.probes["/readyz"]
    assert (ready(), live()) == ((True, "ready\n"), (True, "alive\n"))
    missing["copies"] = "there are too few copies"
    assert ready() == (True, "ready, but there are too few copies\n")
    missing["kafka"] = "Kafka does not answer"
    # A restart would not bring Kafka back.
    assert (ready(), live()) == ((False, "Kafka does not answer\n"), (True, "alive\n"))


@contextlib.contextmanager
def beating(health: Health) -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread, like a service's, which shows that it turns."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(health.beat())

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(timeout=10)
        loop.close()


def test_a_loop_that_stands_still_is_told_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_LOOP_WITHIN_S", 0.5)
    monkeypatch.setattr(health_module, "_LOOP_BEAT_S", 0.01)
    health = Health()
    port = Metrics().serve(host="127.0.0.1", port=0, probes=health.probes)
    assert probed(port, "/readyz") == (503, "it is starting\n")
    health.start()
    assert probed(port, "/readyz") == (200, "ready\n")
    release = threading.Event()
    with beating(health) as loop:
        wait_until(lambda: probed(port, "/livez") == (200, "alive\n"), what="it is alive")
        loop.call_soon_threadsafe(release.wait, 30)
        wait_until(lambda: probed(port, "/livez")[0] == 503, what="the block is reported")
        assert probed(port, "/livez")[1].startswith("the event loop has not turned for ")
        release.set()
        wait_until(lambda: probed(port, "/livez")[0] == 200, what="the loop turns again")


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SetupError, match=rf"127\.0\.0\.1:{port} .*, or set HIFI_X_METRICS_PORT"
        ):
            Metrics().serve(host="127.0.0.1", port=port, setting="HIFI_X_METRICS_PORT")
