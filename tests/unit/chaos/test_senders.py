"""A sender of a chaos run counts events as stored, or as not stored, only if an answer says so."""

import httpx
import pytest

from tests.chaos.senders import acknowledged, not_stored

IDS = ["a", "b", "c"]


def entry(event_id: str | None, status: str) -> dict[str, str | None]:
    return {"id": event_id, "status": status}


@pytest.mark.parametrize(
    ("status", "body", "acked", "refused"),
    [
        (200, {"accepted": 3, "rejected": 0}, {"a", "b", "c"}, set()),
        (204, None, {"a", "b", "c"}, set()),
        (207, {"results": [entry(None, "rejected")]}, {"a", "b", "c"}, set()),
        (207, {"results": [entry("b", "retry")]}, {"a", "c"}, {"b"}),
        (504, {"code": "outcome_unknown", "results": [entry("b", "unknown")]}, {"a", "c"}, set()),
        (504, {"results": [entry("b", "unknown"), entry("c", "retry")]}, {"a"}, {"c"}),
        (504, {"code": "outcome_unknown"}, set(), set()),
        (500, {"code": "internal"}, set(), set()),
        (422, {"results": [entry("a", "rejected")]}, set(), {"a", "b", "c"}),
        (503, {"results": [entry("a", "retry")]}, set(), {"a", "b", "c"}),
        (429, {"code": "quota"}, set(), {"a", "b", "c"}),
    ],
)
def test_an_answer_acknowledges_what_it_promises(
    status: int, body: dict[str, object] | None, acked: set[str], refused: set[str]
) -> None:
    response = httpx.Response(status, json=body) if body is not None else httpx.Response(status)
    assert acknowledged(response, IDS) == acked
    assert not_stored(response, IDS) == refused


def test_a_success_that_is_no_json_still_promises_all() -> None:
    assert acknowledged(httpx.Response(200, text="fine"), IDS) == set(IDS)
