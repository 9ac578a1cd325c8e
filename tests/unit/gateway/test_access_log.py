"""Requests that the gateway logs: each kind and status, and no more than a disk can hold."""

import pytest
from structlog.testing import capture_logs

from gateway.http import access_log
from gateway.http.access_log import LINES_PER_MINUTE_MAX, AccessLog

SCOPE = {"method": "PUT", "path": "/v1/streams/orders", "query_string": b"key=secret"}


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [120.0]
    monkeypatch.setattr(access_log, "monotonic", lambda: now_s[0])
    return now_s


def note(log: AccessLog, *, status: int = 200, kind: str = "control", times: int = 1) -> None:
    for _ in range(times):
        log.note(kind, SCOPE, status=status, request_id="r1", begun_s=119.5)


@pytest.mark.usefixtures("now_s")
def test_a_line_says_what_was_asked_and_answered_and_no_secret() -> None:
    with capture_logs() as lines:
        note(AccessLog(), status=201)
        note(AccessLog(), status=503)
    assert lines[0] == {
        "event": "request.answered",
        "log_level": "info",
        "kind": "control",
        "method": "PUT",
        "path": "/v1/streams/orders",
        "status": 201,
        "request_id": "r1",
        "took_ms": 500.0,
    }
    assert lines[1]["log_level"] == "warning"


def test_a_flood_of_one_kind_hides_no_other(now_s: list[float]) -> None:
    log = AccessLog()
    with capture_logs() as lines:
        note(log, status=401, kind="events", times=LINES_PER_MINUTE_MAX + 40)
        assert len(lines) == LINES_PER_MINUTE_MAX
        note(log, status=503, kind="events")
        note(log, status=401)
        assert len(lines) == LINES_PER_MINUTE_MAX + 2
        now_s[0] += 60
        note(log, status=401, kind="events", times=2)
    assert len(lines) == LINES_PER_MINUTE_MAX + 4
