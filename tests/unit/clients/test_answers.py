"""What each answer of the gateway means for the events of a request."""

import json
from collections.abc import Mapping

import pytest

from hifi_client import Fate
from hifi_client.sending.answers import ALL_ACCEPTED, RETRY_AFTER_S_MAX, read_answer

STORED = {"request_id": "r", "accepted": 3, "rejected": 0}


def problem(code: str, **more: object) -> bytes:
    return json.dumps({"code": code, "detail": "why", "request_id": "r", **more}).encode()


def entry(index: int, status: str) -> dict[str, object]:
    return {"index": index, "id": f"e{index}", "status": status, "code": "c", "detail": "d"}


@pytest.mark.parametrize(("status", "body"), [(200, json.dumps(STORED).encode()), (204, b"")])
def test_a_yes_is_one_of_the_gateways_about_so_many_events(status: int, body: bytes) -> None:
    assert read_answer(status, {}, body, 3) is ALL_ACCEPTED


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>welcome</html>"),
        (200, b'{"ok":true}'),
        (202, b""),
        (200, b"[" * 100_000),
    ],
)
def test_a_yes_of_somebody_else_is_none(status: int, body: bytes) -> None:
    read = read_answer(status, {}, body, 3)
    assert read.again == (0, 1, 2)
    assert read.may_be_stored
    assert read.is_setup
    assert "no Hifi gateway" in read.problem


def test_a_yes_about_fewer_events_than_were_sent_is_none() -> None:
    read = read_answer(200, {}, json.dumps(STORED).encode(), 4)
    assert read.again == (0, 1, 2, 3)
    assert read.may_be_stored


def test_each_event_of_a_207_has_its_own_verdict() -> None:
    results = [entry(0, "rejected"), entry(2, "retry"), entry(3, "unknown")]
    body = json.dumps({"request_id": "r", "accepted": 1, "results": results}).encode()
    read = read_answer(207, {}, body, 4)
    assert read.final.keys() == {0}
    assert (read.final[0].fate, read.final[0].code) == (Fate.REJECTED, "c")
    assert read.again == (2, 3)
    assert read.may_be_stored


@pytest.mark.parametrize(
    ("status", "code", "statuses"),
    [
        (503, "not_stored", ["rejected", "retry"]),
        (504, "outcome_unknown", ["rejected", "unknown"]),
        (422, "all_rejected", ["rejected", "rejected"]),
    ],
)
def test_what_a_problem_lists_counts_before_its_status(
    status: int, code: str, statuses: list[str]
) -> None:
    results = [entry(nth, each) for nth, each in enumerate(statuses)]
    read = read_answer(status, {}, problem(code, accepted=0, results=results), 2)
    assert set(read.final) == {nth for nth, each in enumerate(statuses) if each == "rejected"}
    assert set(read.again) == set(range(2)) - set(read.final)
    assert read.may_be_stored is ("unknown" in statuses)


@pytest.mark.parametrize(
    "results", [[entry(7, "rejected")], [entry(0, "rejected"), entry(0, "rejected")], ["x"]]
)
def test_a_list_that_does_not_fit_the_request_is_not_believed(results: list[object]) -> None:
    body = json.dumps({"request_id": "r", "accepted": 1, "results": results}).encode()
    read = read_answer(207, {}, body, 2)
    assert read.again == (0, 1)
    assert read.may_be_stored


@pytest.mark.parametrize("status", [408, 409, 429, 503])
def test_where_nothing_was_stored_the_same_is_sent_again(status: int) -> None:
    read = read_answer(status, {"retry-after": "7"}, problem("quota_events"), 2)
    assert (read.again, read.may_be_stored, read.wait_s) == ((0, 1), False, 7.0)
    assert not read.is_setup


@pytest.mark.parametrize("status", [500, 502, 504])
def test_where_that_is_not_known_it_is_said_to_be_not_known(status: int) -> None:
    read = read_answer(status, {}, b"", 1)
    assert (read.again, read.may_be_stored) == ((0,), True)


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405, 421])
def test_what_a_person_has_to_change_is_told_as_such(status: int) -> None:
    read = read_answer(status, {"location": "https://b/"}, problem("unauthenticated"), 1)
    assert read.is_setup
    assert not read.may_be_stored
    assert read.problem.endswith(".")


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_one_event_may_be_to_blame_for_is_halved(status: int) -> None:
    assert read_answer(status, {}, problem("body_too_large"), 2).is_to_be_halved


@pytest.mark.parametrize(
    ("status", "code"), [(415, "unsupported"), (422, "idempotency_key_reused")]
)
def test_other_refusals_are_final_for_each_event(status: int, code: str) -> None:
    read = read_answer(status, {}, problem(code), 2)
    assert {each.fate for each in read.final.values()} == {Fate.REJECTED}
    assert set(read.final) == {0, 1}


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "99999"}, RETRY_AFTER_S_MAX),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Tue, 24 Nov 2026 21:00:09 GMT"}, None),
        (
            {
                "retry-after": "Tue, 24 Nov 2026 21:00:09 GMT",
                "date": "Tue, 24 Nov 2026 21:00:00 GMT",
            },
            9.0,
        ),
    ],
)
def test_retry_after_is_read_in_both_its_forms(
    headers: Mapping[str, str], wait_s: float | None
) -> None:
    assert read_answer(503, headers, b"", 1).wait_s == wait_s
