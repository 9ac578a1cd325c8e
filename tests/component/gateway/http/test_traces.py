"""Requests with events have spans below the sender's, and never wait for a collector."""

import socket
from collections.abc import Iterator
from time import monotonic

import pytest

from gateway.intake.request_spans import RequestSpans, spans_of
from gateway.settings import Settings
from shared.event.topics import stream_topic
from shared.runtime.metrics import Metrics
from shared.runtime.tracing.exporter import SHARE_MAX, WAITING_MAX, SpanExporter
from shared.runtime.tracing.spans import SpanKind, SpanParent, TraceSpan
from tests.support.delivery.record_headers import headers_of
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway
from tests.support.servers.trace_collector import TraceCollector, trace_collector

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
JSON = {"content-type": "application/json"}
ABOVE = "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def collector() -> Iterator[TraceCollector]:
    with trace_collector() as collector:
        yield collector


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def gateway(publisher: FakePublisher, collector: TraceCollector) -> Iterator[RunningGateway]:
    exporter = SpanExporter(
        f"{collector.url}/v1/traces",
        {"service.name": "hifi-gateway"},
        headers={"authorization": "me"},
    )
    spans = RequestSpans(exporter, ratio=1.0)
    settings = Settings(auth="off")
    try:
        with running_gateway(publisher, config_with("orders"), settings, spans=spans) as gateway:
            yield gateway
    finally:
        exporter.close()


def traceparents(publisher: FakePublisher) -> list[str]:
    headers = [dict(headers_of(event)) for event in publisher.stored(TOPIC)]
    return [each["traceparent"].decode() for each in headers]


@pytest.mark.parametrize("more", [{}, {"idempotency-key": "k"}], ids=["in one piece", "once"])
def test_a_request_and_its_way_into_kafka_are_spans_of_the_senders_trace(
    gateway: RunningGateway,
    publisher: FakePublisher,
    collector: TraceCollector,
    more: dict[str, str],
) -> None:
    trace_id = f"{len(more) + 1:032x}"
    headers = JSON | more | {"traceparent": f"00-{trace_id}-{ABOVE}-01"}
    assert gateway.client.post(PATH, content=b'[{"a":1},{"a":2}]', headers=headers).is_success
    wait_until(lambda: len(collector.spans(trace_id)) == 2, what="both spans")
    stored, request = collector.spans(trace_id)
    assert request["parentSpanId"] == ABOVE
    assert stored["parentSpanId"] == request["spanId"]
    assert request["attributes"]["hifi.events"] == 2
    assert request["attributes"]["http.response.status_code"] == 200
    assert (request["service"], request["by"]) == ("hifi-gateway", "me")
    # Later spans of the events are children of the request's.
    assert traceparents(publisher) == [f"00-{trace_id}-{request['spanId']}-01"] * 2


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("", {"service.name": "hifi-gateway", "service.namespace": "shop"}),
        ("events", {"service.name": "events", "service.namespace": "shop"}),
    ],
)
def test_variables_of_opentelemetry_reach_the_collector(
    monkeypatch: pytest.MonkeyPatch,
    collector: TraceCollector,
    name: str,
    resource: dict[str, str],
) -> None:
    # An address for traces is used as it is.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/collect?all=1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20abc")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=shop")
    monkeypatch.setenv("OTEL_SERVICE_NAME", name)
    trace_id = f"{len(name) + 20:032x}"
    with spans_of(Metrics()) as spans:
        assert spans is not None
        # The specification's default would trace every request.
        assert spans.begin(None, tenant="a", stream="orders") is None
        span = spans.begin(f"00-{trace_id}-{ABOVE}-01", tenant="a", stream="orders")
        assert span is not None
        span.end(200, event_count=1)
    (told,) = collector.spans(trace_id)
    assert (told["resource"], told["by"]) == (resource, "Bearer abc")


def test_a_refused_request_has_a_span_too(
    gateway: RunningGateway, collector: TraceCollector
) -> None:
    for number, more in enumerate(({}, {"idempotency-key": "k"})):
        trace_id = f"{number + 10:032x}"
        headers = JSON | more | {"traceparent": f"00-{trace_id}-{ABOVE}-01"}
        assert gateway.client.post(PATH, content=b"[", headers=headers).status_code == 400
        wait_until(lambda: len(collector.spans(trace_id)) == 1, what="a span")  # noqa: B023
        (span,) = collector.spans(trace_id)
        assert span["attributes"]["http.response.status_code"] == 400


def test_who_says_not_sampled_is_not_traced_and_who_says_nothing_by_the_dice(
    gateway: RunningGateway, publisher: FakePublisher, collector: TraceCollector
) -> None:
    unwanted = f"00-{'a' * 32}-{ABOVE}-00"
    gateway.client.post(PATH, content=b"[{}]", headers=JSON | {"traceparent": unwanted})
    gateway.client.post(PATH, content=b"[{}]", headers=JSON)
    passed_on, made = traceparents(publisher)
    assert passed_on == unwanted
    _, trace_id, span_id, flags = made.split("-")
    assert flags == "01"
    wait_until(lambda: len(collector.spans(trace_id)) == 2, what="both spans")
    (request,) = [span for span in collector.spans(trace_id) if span["spanId"] == span_id]
    assert "parentSpanId" not in request
    assert collector.spans("a" * 32) == []


def a_span() -> TraceSpan:
    parent = SpanParent("c" * 32, ABOVE)
    return TraceSpan(parent, "d" * 16, "a", SpanKind.CLIENT, 1, 2, {}, is_error=False)


def test_a_collector_that_hangs_keeps_nobody_and_what_waits_for_it_is_bounded() -> None:
    counts: dict[str, int] = {"sent": 0, "dropped": 0}

    def count(result: str, number: int) -> None:
        counts[result] += number

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        exporter = SpanExporter(url, {}, headers={}, count=count)
        exporter.offer(a_span(), whose="first")
        heard, _ = deaf.accept()
        # The exporter's thread now waits for an answer.
        begun_s = monotonic()
        for _ in range(SHARE_MAX + 10):
            exporter.offer(a_span(), whose="flood")
        assert counts["dropped"] == 10
        # Others may still use all remaining room.
        for number in range(WAITING_MAX):
            exporter.offer(a_span(), whose=str(number))
        assert counts["dropped"] == 10 + SHARE_MAX
        assert monotonic() - begun_s < 5
        assert counts["sent"] == 0
        heard.close()


def test_what_nobody_takes_is_dropped_and_counted() -> None:
    counts: list[tuple[str, int]] = []
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    exporter = SpanExporter(url, {}, headers={}, count=lambda *what: counts.append(what))
    exporter.offer(a_span(), whose="a")
    exporter.close()
    assert counts == [("dropped", 1)]
