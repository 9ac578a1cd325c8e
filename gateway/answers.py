"""Builds an answer's status and body from the rejected events and Kafka's reports.

A success covers exactly the events that Kafka reported stored. With one unknown event, the answer
is a 504.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import structlog

from gateway.intake.events import ParsedBody
from gateway.problems import CONTENT_TYPE, Problem
from gateway.publish.partitions import partition_of
from gateway.publish.report import Fate, Report

log = structlog.get_logger()

AnswerHeaders: TypeAlias = tuple[tuple[bytes, bytes], ...]
# The code of the problem when all events have this fate.
_CODES = {
    Fate.NOT_STORED: "not_stored",
    Fate.UNKNOWN: "outcome_unknown",
}
PROBLEM_TYPE = (b"content-type", CONTENT_TYPE)


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    headers: AnswerHeaders = ()
    # True if sending the same request again would change nothing.
    is_final: bool = True

    def with_headers(self, more: AnswerHeaders) -> "Answer":
        if not more:
            return self
        return Answer(self.status, self.body, self.headers + more, self.is_final)

    def minimal(self) -> "Answer":
        """Return the answer to `return=minimal`: a success without a body."""
        return Answer(204, b"", self.headers) if self.status == 200 else self  # noqa: PLR2004


def problem_answer(problem: Problem, request_id: str) -> Answer:
    return Answer(problem.status, problem.to_json(request_id), (*problem.headers, PROBLEM_TYPE))


def unforeseen(request_id: str, error: Exception) -> Answer:
    """Log an unexpected error, and return the answer to its request."""
    log.error("request.failed", request_id=request_id, exc_info=error)
    detail = "It is unknown which of this request's events were stored."
    return problem_answer(Problem("internal_error", detail), request_id)


def count_outcomes(parsed: ParsedBody, reports: Sequence[Report]) -> Mapping[str, int]:
    """Count the events of a request by the outcome that the caller gets for each."""
    # Not a Counter: its methods are Python code, and would take 1.4 µs a request.
    counts = {"accepted": 0, "rejected": len(parsed.rejections)}
    for report in reports:
        word = "accepted" if report.fate is Fate.STORED else report.fate.value
        counts[word] = counts.get(word, 0) + len(report.positions)
    event_count = len(parsed.events) + len(parsed.rejections)
    assert sum(counts.values()) == event_count, "one outcome for each event"
    return counts


def answer(
    parsed: ParsedBody,
    reports: Sequence[Report],
    *,
    counts: Mapping[str, int],
    request_id: str,
    lists_all: bool,
) -> Answer | Problem:
    """Return the outcome of every event of a request."""
    total, accepted = sum(counts.values()), counts["accepted"]
    if accepted == total and not lists_all:
        body = b'{"request_id":"%b","accepted":%d,"rejected":0}' % (request_id.encode(), total)
        return Answer(200, body)
    members: dict[str, Any] = dict(counts)
    retry, unknown = counts.get("retry", 0), counts.get("unknown", 0)
    if lists_all or accepted != total:
        members["results"] = _results(parsed, reports, lists_all=lists_all)
    if unknown:
        return Problem(
            "outcome_unknown",
            "Kafka did not report in time on the events listed as unknown. They may be stored:"
            " send them again with the same ids.",
            members=members,
        )
    if accepted or total == 0:
        status = 200 if accepted == total else 207
        body = msgspec.json.encode({"request_id": request_id, **members})
        return Answer(status, body, is_final=not retry)
    if retry:
        return Problem(
            "not_stored",
            "Kafka stored no event of this request. Send the events listed as retryable again.",
            members=members,
            headers=((b"retry-after", b"1"),),
        )
    detail = "Every event was rejected; `results` has the reasons."
    return Problem("all_rejected", detail, members=members)


def strict_refusal(parsed: ParsedBody) -> Problem:
    """Return the refusal of all events because of an invalid one, as handling=strict asks."""
    members: dict[str, Any] = {
        "accepted": 0,
        "rejected": len(parsed.rejections),
        "aborted": len(parsed.events),
        "results": _results(parsed, (), lists_all=False),
    }
    detail = "With handling=strict, nothing is stored if one event of the request is invalid."
    return Problem("strict_rejected", detail, members=members)


def dry_answer(parsed: ParsedBody, *, partition_count: int, request_id: str) -> Answer:
    """Return what would happen to each event without ?dry_run."""
    entries = _results(parsed, (), lists_all=False)
    for index, event in zip(parsed.indexes, parsed.events, strict=True):
        entry: dict[str, Any] = {"index": index, "id": event.id, "status": "valid"}
        if event.key is not None:
            entry["key"] = event.key.decode(errors="replace")
            entry["partition"] = partition_of(event.key, partition_count)
        if event.partition is not None:
            entry["partition"] = event.partition
        entries.append(entry)
    members = {
        "request_id": request_id,
        "dry_run": True,
        "accepted": 0,
        "valid": len(parsed.events),
        "rejected": len(parsed.rejections),
        "results": sorted(entries, key=lambda entry: int(entry["index"])),
    }
    return Answer(200, msgspec.json.encode(members))


def _results(
    parsed: ParsedBody, reports: Sequence[Report], *, lists_all: bool
) -> list[dict[str, Any]]:
    """Return entries for the events that were not accepted, or for all, in the body's order."""
    entries: list[dict[str, Any]] = [
        {
            "index": rejection.index,
            "id": rejection.id,
            "status": "rejected",
            "code": rejection.code,
            "detail": rejection.detail,
            "pointer": rejection.pointer,
            "retryable": False,
        }
        for rejection in parsed.rejections
    ]
    for report in reports:
        if report.fate is Fate.STORED and not lists_all:
            continue
        for number, position in enumerate(report.positions):
            entry: dict[str, Any] = {
                "index": parsed.indexes[position],
                "id": parsed.events[position].id,
                "status": report.fate.value,
            }
            if report.fate is Fate.STORED:
                offset = None if report.first_offset is None else report.first_offset + number
                entry |= {"partition": report.partition, "offset": offset}
            else:
                code = _CODES[report.fate]
                entry |= {"code": code, "detail": report.reason, "retryable": True}
            entries.append(entry)
    return sorted(entries, key=lambda entry: int(entry["index"]))
