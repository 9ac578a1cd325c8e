"""Attempts that a worker logs: enough to show a destination's changes, too few to fill a disk."""

import pytest
from structlog.testing import capture_logs

from delivery import attempt_log
from delivery.attempt_log import LINES_PER_MINUTE_MAX, AttemptLog
from shared.retry.attempt import Attempt, Failure, NoResponse, Response, classify


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [60.0]
    monkeypatch.setattr(attempt_log, "monotonic", lambda: now_s[0])
    return now_s


def note(log: AttemptLog, *attempts: Attempt, destination_id: str = "orders/shop") -> None:
    for attempt in attempts:
        log.note(destination_id, attempt, classify(attempt), batch_id="msg_1")


def test_the_first_attempt_of_a_minute_is_logged(now_s: list[float]) -> None:
    log = AttemptLog()
    with capture_logs() as lines:
        note(log, *[Response(200)] * 5)
        note(log, Response(200), destination_id="orders/bank")
        now_s[0] += 60
        note(log, *[Response(200)] * 5)
    named = [line["destination"] for line in lines]
    assert named == ["orders/shop", "orders/bank", "orders/shop"]
    assert lines[0] == {
        "event": "delivery.attempted",
        "log_level": "info",
        "destination": "orders/shop",
        "batch_id": "msg_1",
        "outcome": "ok",
        "reason": "status_200",
        "status": 200,
        "detail": "",
    }


@pytest.mark.usefixtures("now_s")
def test_each_change_of_what_attempts_come_to_is_logged() -> None:
    refused = NoResponse(Failure.CONNECT_REFUSED, "nobody listens")
    log = AttemptLog()
    with capture_logs() as lines:
        note(log, Response(200), refused, refused, Response(503), Response(200))
    assert [(line["reason"], line["log_level"]) for line in lines] == [
        ("status_200", "info"),
        ("connect_refused", "warning"),
        ("status_503", "warning"),
        ("status_200", "info"),
    ]
    assert (lines[1]["status"], lines[1]["detail"]) == (None, "nobody listens")


def test_a_destination_that_flaps_fills_no_disk(now_s: list[float]) -> None:
    log = AttemptLog()
    with capture_logs() as lines:
        note(log, *[Response(200), Response(503)] * 1_000)
        assert len(lines) == LINES_PER_MINUTE_MAX
        now_s[0] += 60
        note(log, Response(200))
    assert len(lines) == LINES_PER_MINUTE_MAX + 1
