"""Spans of attempts: one for each trace of the batch, up to a bound."""

from typing import Any, cast

from delivery.http.attempt_spans import TRACES_MAX, AttemptSpans
from shared.config.destination import Destination
from shared.retry.attempt import Failed, Failure, Responded, classify
from shared.runtime.tracing.spans import SpanParent, TraceSpan

TO = Destination(stream="orders", name="shop", url="https://a.example/")
SPAN = "b" * 16


class KeptSpans:
    def __init__(self) -> None:
        self.spans: list[TraceSpan] = []

    def offer(self, span: TraceSpan, *, whose: str) -> None:
        assert whose == TO.id
        self.spans.append(span)


def noted(traceparents: list[str], attempt: Responded | Failed) -> list[TraceSpan]:
    kept = KeptSpans()
    headers = {"webhook-id": "w", "hifi-events": "3", "hifi-attempt": "2"}
    verdict = classify(attempt)
    AttemptSpans(cast("Any", kept)).note(
        TO, traceparents, verdict, attempt, latency_ms=5.0, headers=headers
    )
    return kept.spans


def test_each_trace_has_the_attempt_once_and_the_others_have_none() -> None:
    one, two = (f"00-{letter * 32}-{SPAN}-01" for letter in "cd")
    spans = noted([one, f"00-{'e' * 32}-{SPAN}-00", two, one], Responded(200))
    assert [span.parent for span in spans] == [SpanParent(c * 32, SPAN) for c in "cd"]
    assert spans[0].ended_ns - spans[0].begun_ns == 5_000_000
    assert not spans[0].is_error
    assert spans[0].attributes["hifi.attempt"] == 2
    assert spans[0].attributes["http.response.status_code"] == 200


def test_a_call_without_an_answer_is_an_error_without_a_status() -> None:
    (span,) = noted([f"00-{'c' * 32}-{SPAN}-01"], Failed(Failure.SLOW_ANSWER, "late"))
    assert span.is_error
    assert "http.response.status_code" not in span.attributes


def test_of_many_traces_some_have_it() -> None:
    many = [f"00-{number:032x}-{SPAN}-01" for number in range(1, 100)]
    assert len(noted(many, Responded(200))) == TRACES_MAX
