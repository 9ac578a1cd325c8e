"""Spans of attempts: one for each trace of the batch, up to a bound."""

from dataclasses import replace
from typing import Any, cast

from delivery.http.attempt_spans import TRACES_MAX, AttemptSpans
from shared.config.destination import Destination
from shared.event.envelope import Envelope, History, MalformedRecord
from shared.event.record import Origin, RecordIn, RecordOut
from shared.retry.attempt import Failure, NoResponse, Response, classify
from shared.retry.decision import DeadLetter, RetryLater
from shared.retry.routing import route, route_malformed
from shared.retry.schedule import RetrySchedule
from shared.runtime.tracing.spans import SpanKind, SpanParent, TraceSpan

TO = Destination(stream="orders", name="shop", url="https://a.example/")
SPAN = "b" * 16


class KeptSpans:
    def __init__(self) -> None:
        self.spans: list[TraceSpan] = []

    def offer(self, span: TraceSpan, *, whose: str) -> None:
        assert whose == TO.id
        self.spans.append(span)


def noted(traceparents: list[str], attempt: Response | NoResponse) -> list[TraceSpan]:
    kept = KeptSpans()
    headers = {"webhook-id": "w", "hifi-events": "3", "hifi-attempt": "2"}
    verdict = classify(attempt)
    AttemptSpans(cast("Any", kept)).note(
        TO, traceparents, verdict, attempt, latency_ms=5.0, headers=headers
    )
    return kept.spans


def test_each_trace_has_the_attempt_once_and_the_others_have_none() -> None:
    one, two = (f"00-{letter * 32}-{SPAN}-01" for letter in "cd")
    spans = noted([one, f"00-{'e' * 32}-{SPAN}-00", two, one], Response(200))
    assert [span.parent for span in spans] == [SpanParent(c * 32, SPAN) for c in "cd"]
    assert spans[0].ended_ns - spans[0].begun_ns == 5_000_000
    assert not spans[0].is_error
    assert spans[0].attributes["hifi.attempt"] == 2
    assert spans[0].attributes["http.response.status_code"] == 200


def test_a_call_without_an_answer_is_an_error_without_a_status() -> None:
    (span,) = noted([f"00-{'c' * 32}-{SPAN}-01"], NoResponse(Failure.SLOW_ANSWER, "late"))
    assert span.is_error
    assert "http.response.status_code" not in span.attributes


def test_of_many_traces_some_have_it() -> None:
    many = [f"00-{number:032x}-{SPAN}-01" for number in range(1, 100)]
    assert len(noted(many, Response(200))) == TRACES_MAX


def given_up(letter: str, *, reason: str = "status_400", flags: str = "01") -> RecordOut:
    trace = f"00-{letter * 32}-{SPAN}-{flags}"
    envelope = Envelope(Origin("t", 0, 7), b"{}", None, "orders", "e", 1, 2, trace)
    history = replace(History.fresh(now_ms=1, deadline_s=9), attempt_count=3)
    return route(DeadLetter(reason, history), envelope, TO.id, now_ms=5)


def test_what_is_given_up_is_the_last_span_of_its_trace() -> None:
    kept, tier = KeptSpans(), RetrySchedule().tiers[0]
    envelope = Envelope(
        Origin("t", 0, 7), b"{}", None, "orders", "e", 1, 2, f"00-{'f' * 32}-{SPAN}-01"
    )
    waits = RetryLater(tier, History.fresh(now_ms=1, deadline_s=9))
    unread = MalformedRecord(RecordIn(Origin("t", 0, 0), 0, None, b"", ()), "odd")
    AttemptSpans(cast("Any", kept)).note_dead(
        [
            *(given_up("c"), given_up("c"), given_up("d"), given_up("d", reason="deadline_passed")),
            *(given_up("e", flags="00"), route(waits, envelope, TO.id, now_ms=5)),
            route_malformed(unread, now_ms=5),
        ]
    )
    ends = [(it.parent.trace_id[0], it.attributes["hifi.reason"]) for it in kept.spans]
    assert ends == [("c", "status_400"), ("d", "status_400"), ("d", "deadline_passed")]
    first = kept.spans[0]
    assert first.parent == SpanParent("c" * 32, SPAN)
    assert (first.name, first.kind) == (f"dead letter {TO.id}", SpanKind.INTERNAL)
    assert first.is_error
    assert first.begun_ns == first.ended_ns
    assert (first.attributes["hifi.events"], first.attributes["hifi.attempt"]) == (2, 3)
