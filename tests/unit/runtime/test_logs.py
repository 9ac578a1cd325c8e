"""A process logs a JSON line per event for machines, and plain text for people."""

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest
import structlog

from shared.runtime.logs import configure_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _clean_structlog() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def fail_and_tell() -> None:
    log = structlog.get_logger()
    try:
        int("no such thing")
    except ValueError:
        log.exception("lane.failed", destination="orders/shop")


def test_a_machine_gets_a_json_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    configure_logs(service="gateway")
    structlog.get_logger().info("event.accepted", stream="orders")
    line = json.loads(written.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "event.accepted",
        "stream": "orders",
        "service": "gateway",
        "level": "info",
    }


def test_a_machine_gets_an_exception_within_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    configure_logs(service="delivery")
    fail_and_tell()
    line = json.loads(written.getvalue())
    assert "ValueError: invalid literal" in line["exception"]


def test_a_line_of_a_library_is_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines such as `ERROR:aiokafka:Unable to connect` stood between lines of JSON."""
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    # The test runner has set up logging for itself.
    monkeypatch.setattr(logging.root, "handlers", [])
    configure_logs(service="gateway")
    library = logging.getLogger("aiokafka.conn")
    library.info("nobody needs this")
    library.error("Unable to connect to %s:\ngone", "broker-1")
    try:
        int("no such thing")
    except ValueError:
        library.exception("failed")
    first, second = map(json.loads, written.getvalue().splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "Unable to connect to broker-1:\ngone",
        "logger": "aiokafka.conn",
        "service": "gateway",
        "level": "error",
    }
    assert "ValueError: invalid literal" in second["exception"]


def test_a_line_of_another_thread_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    configure_logs(service="gateway")
    thread = threading.Thread(target=fail_and_tell)
    thread.start()
    thread.join()
    assert json.loads(written.getvalue())["service"] == "gateway"


def test_a_person_gets_text_and_no_warning_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := Terminal())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        configure_logs(service="delivery")
        fail_and_tell()
    assert "lane.failed" in written.getvalue()
    assert "no such thing" in written.getvalue()
    assert not written.getvalue().startswith("{")


def test_what_is_below_the_level_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    configure_logs(service="gateway", level="WARNING")
    structlog.get_logger().info("event.accepted")
    assert written.getvalue() == ""
