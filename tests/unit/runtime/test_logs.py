"""A process logs a JSON line per event for machines, and plain text for people."""

import io
import json
import sys
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
