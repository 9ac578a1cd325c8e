"""Turns the catalogue's metrics into Prometheus ones: a registry and a port per process."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    make_wsgi_app,
    start_http_server,
)

from shared.metric_names import Metric

# What a GET of a path answers; called in a thread of the server's.
Pages: TypeAlias = Mapping[str, Callable[[], bytes]]
_NO_PAGES: Pages = {}

M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one process. Each is made once, when it is first asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Several lanes, each in its thread, may ask for the same metric first.
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}

    def counter(self, metric: Metric) -> Counter:
        return self._metric("counter", Counter, metric)

    def gauge(self, metric: Metric) -> Gauge:
        return self._metric("gauge", Gauge, metric)

    def histogram(self, metric: Metric) -> Histogram:
        return self._metric("histogram", Histogram, metric, buckets=metric.buckets)

    def _metric(self, kind: str, make: Callable[..., M], metric: Metric, **options: Any) -> M:
        assert metric.kind == kind, f"{metric.name} is a {metric.kind}"
        with self._lock:
            if metric.name not in self._made:
                self._made[metric.name] = make(
                    metric.name, metric.meaning, metric.labels, registry=self.registry, **options
                )
            made: M = self._made[metric.name]
            return made

    def serve(self, *, host: str, port: int, pages: Pages = _NO_PAGES) -> None:
        """Answer GET /metrics, and pages of JSON by their paths, in a thread of its own."""
        server, _ = start_http_server(port, addr=host, registry=self.registry)
        metrics_page = make_wsgi_app(self.registry)

        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            page = pages.get(environ["PATH_INFO"])
            if page is None:
                body: Iterable[bytes] = metrics_page(environ, start_response)
                return body
            start_response("200 OK", [("Content-Type", "application/json")])
            return [page()]

        server.set_app(answer)
