"""A sender of a chaos run takes for acknowledged what an answer promises, and nothing else."""

import httpx
import pytest

from tests.chaos.senders import acknowledged

IDS = ["a", "b", "c"]


def entry(event_id: str | None, status: str) -> dict[str, str | None]:
    return {"id": event_id, "status": status}


@pytest.mark.parametrize(
    ("status", "body", "acked"),
    [
        (200, {"accepted": 3, "rejected": 0}, {"a", "b", "c"}),
        (204, None, {"a", "b", "c"}),
        (202, {"ack": "spool", "accepted": 0, "spooled": 3}, {"a", "b", "c"}),
        (202, {"results": [entry("a", "spooled"), entry("b", "retry")]}, {"a", "c"}),
        (207, {"results": [entry(None, "rejected")]}, {"a", "b", "c"}),
        (207, {"results": [entry("b", "retry"), entry("c", "spooled")]}, {"a", "c"}),
        (504, {"code": "outcome_unknown", "results": [entry("b", "unknown")]}, {"a", "c"}),
        (504, {"code": "outcome_unknown"}, set()),
        (422, {"results": [entry("a", "rejected")]}, set()),
        (503, {"results": [entry("a", "retry")]}, set()),
        (429, {"code": "quota"}, set()),
    ],
)
def test_an_answer_acknowledges_what_it_promises(
    status: int, body: dict[str, object] | None, acked: set[str]
) -> None:
    response = httpx.Response(status, json=body) if body is not None else httpx.Response(status)
    assert acknowledged(response, IDS) == acked


def test_a_success_that_is_no_json_still_promises_all() -> None:
    assert acknowledged(httpx.Response(200, text="fine"), IDS) == set(IDS)
