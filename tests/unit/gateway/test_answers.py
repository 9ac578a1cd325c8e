"""Statuses and bodies of answers, as a table over rejected events and Kafka's reports."""

import json
from collections import Counter

import pytest

from gateway.answers import Answer, answer, count_outcomes
from gateway.intake.events import Event, ParsedBody, Rejection
from gateway.problems import CATALOGUE, Problem
from gateway.publish.report import Fate, Report

OK, RETRY, UNKNOWN, REJECTED = "accepted", "retry", "unknown", "rejected"
FATES = {OK: Fate.STORED, RETRY: Fate.NOT_STORED, UNKNOWN: Fate.UNKNOWN}


def ask(*outcomes: str, lists_all: bool = False) -> tuple[int, dict[str, object]]:
    """Return the answer to a request whose events had these outcomes, in this order."""
    parsed = ParsedBody()
    events: list[Event] = []
    indexes, reports = [], []
    for index, outcome in enumerate(outcomes):
        if outcome == REJECTED:
            parsed.rejections.append(Rejection(index, None, "bad_id", "why", f"/{index}/id"))
            continue
        position = len(events)
        events.append(Event.of(id=f"e{index}", key=None, value=b"{}", headers=()))
        indexes.append(index)
        reports.append(Report(FATES[outcome], [position], 3, 100 + position, reason="why"))
    parsed.events, parsed.indexes = events, indexes
    counts = count_outcomes(parsed, reports)
    assert +Counter(counts) == Counter(outcomes)
    found = answer(parsed, reports, counts=counts, request_id="r", lists_all=lists_all)
    body = found.body if isinstance(found, Answer) else found.to_json("r")
    return found.status, json.loads(body)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([], 200),
        ([OK], 200),
        ([OK, OK], 200),
        ([OK, REJECTED], 207),
        ([OK, RETRY], 207),
        ([OK, RETRY, REJECTED], 207),
        ([REJECTED], 422),
        ([RETRY], 503),
        ([RETRY, REJECTED], 503),
        ([UNKNOWN], 504),
        ([OK, UNKNOWN], 504),
        ([RETRY, UNKNOWN], 504),
        ([REJECTED, UNKNOWN], 504),
        ([OK, RETRY, REJECTED, UNKNOWN], 504),
    ],
)
@pytest.mark.parametrize("lists_all", [False, True])
def test_the_status_says_what_was_stored(
    outcomes: list[str], status: int, *, lists_all: bool
) -> None:
    found, body = ask(*outcomes, lists_all=lists_all)
    assert found == status
    assert body["request_id"] == "r"
    assert body["accepted"] == outcomes.count(OK)
    assert body["rejected"] == outcomes.count(REJECTED)
    listed = [o for o in outcomes if lists_all or o != OK]
    results = body.get("results", [])
    assert isinstance(results, list)
    assert [entry["status"] for entry in results] == listed


def test_results_are_in_the_order_of_the_body_and_say_what_to_do() -> None:
    _, body = ask(REJECTED, OK, RETRY, lists_all=True)
    assert body["results"] == [
        {
            "index": 0,
            "id": None,
            "status": "rejected",
            "code": "bad_id",
            "detail": "why",
            "pointer": "/0/id",
            "retryable": False,
        },
        {"index": 1, "id": "e1", "status": "accepted", "partition": 3, "offset": 100},
        {
            "index": 2,
            "id": "e2",
            "status": "retry",
            "code": "not_stored",
            "detail": "why",
            "retryable": True,
        },
    ]


def test_a_slice_gives_each_event_its_own_offset() -> None:
    parsed = ParsedBody(
        [Event.of(id=i, key=None, value=b"{}", headers=()) for i in "ab"], range(2), []
    )
    reports = [Report(Fate.STORED, range(2), 1, 50)]
    counts = count_outcomes(parsed, reports)
    found = answer(parsed, reports, counts=counts, request_id="r", lists_all=True)
    assert isinstance(found, Answer)
    assert [entry["offset"] for entry in json.loads(found.body)["results"]] == [50, 51]


def test_an_event_without_a_report_is_a_broken_invariant_and_never_a_success() -> None:
    parsed = ParsedBody([Event.of(id="a", key=None, value=b"{}", headers=())], range(1), [])
    with pytest.raises(AssertionError):
        count_outcomes(parsed, [])


@pytest.mark.parametrize("code", list(CATALOGUE))
def test_every_problem_is_a_document_of_rfc_9457(code: str) -> None:
    problem = Problem(code, "The event is too large.", pointer="/0", members={"limit": "x"})
    document = json.loads(problem.to_json("r"))
    assert document.keys() >= {"type", "title", "status", "detail", "code", "request_id"}
    assert document["status"] == problem.status
    assert 400 <= problem.status <= 599
    assert (document["pointer"], document["limit"]) == ("/0", "x")
