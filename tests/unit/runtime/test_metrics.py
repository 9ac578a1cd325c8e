"""A process has each metric of the catalogue once, of its own kind, and shows it over HTTP."""

import threading
import urllib.request

import pytest
from prometheus_client import start_http_server
from prometheus_client.exposition import generate_latest

from shared.metric_names import (
    CATALOGUE,
    GATEWAY_ACK_SECONDS,
    GATEWAY_EVENTS,
    GATEWAY_IN_FLIGHT_BYTES,
    Metric,
)
from shared.runtime import metrics as metrics_module
from shared.runtime.metrics import Metrics


def make(metrics: Metrics, metric: Metric) -> object:
    match metric.kind:
        case "counter":
            return metrics.counter(metric)
        case "gauge":
            return metrics.gauge(metric)
        case "histogram":
            return metrics.histogram(metric)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_each_metric_of_the_catalogue_can_be_made_and_is_made_once(metric: Metric) -> None:
    metrics = Metrics()
    assert make(metrics, metric) is make(metrics, metric)
    shown = generate_latest(metrics.registry).decode()
    assert f"# TYPE {metric.name} {metric.kind}\n" in shown


def test_a_metric_is_not_made_as_another_kind() -> None:
    metrics = Metrics()
    with pytest.raises(AssertionError, match="hifi_gateway_events_total is a counter"):
        metrics.gauge(GATEWAY_EVENTS)
    with pytest.raises(AssertionError, match="is a gauge"):
        metrics.histogram(GATEWAY_IN_FLIGHT_BYTES)
    with pytest.raises(AssertionError, match="is a histogram"):
        metrics.counter(GATEWAY_ACK_SECONDS)


def test_threads_that_ask_at_once_get_the_same_metric() -> None:
    metrics = Metrics()
    start = threading.Barrier(8)
    made: list[object] = []

    def ask() -> None:
        start.wait(timeout=10)
        made.append(metrics.counter(GATEWAY_EVENTS))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(made) == 8
    assert len({id(each) for each in made}) == 1


def test_metrics_are_shown_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[object, threading.Thread]] = []

    def start(*args: object, **options: object) -> object:
        started.append(start_http_server(*args, **options))  # type: ignore[arg-type]
        return started[0]

    # Only to learn the port and to stop the server; everything else is the real thing.
    monkeypatch.setattr(metrics_module, "start_http_server", start)
    metrics = Metrics()
    metrics.counter(GATEWAY_EVENTS).labels(stream="orders", result="accepted").inc(3)
    metrics.serve(host="127.0.0.1", port=0, pages={"/books": lambda: b'{"books":[]}'})
    server, thread = started[0]
    try:
        port = server.server_address[1]  # type: ignore[attr-defined]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            shown = response.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/books", timeout=10) as response:
            books = response.read()
    finally:
        server.shutdown()  # type: ignore[attr-defined]
        server.server_close()  # type: ignore[attr-defined]
        thread.join(timeout=10)
    assert books == b'{"books":[]}'
    assert 'hifi_gateway_events_total{result="accepted",stream="orders"} 3.0' in shown
