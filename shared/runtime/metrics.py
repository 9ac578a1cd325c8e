"""Turns the catalogue's metrics into Prometheus ones: a registry and a port per process."""

import threading

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from shared.metric_names import Metric


class Metrics:
    """The metrics of one process. Each is made once, when it is first asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Several lanes, each in its thread, may ask for the same metric first.
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}

    def counter(self, metric: Metric) -> Counter:
        assert metric.kind == "counter", f"{metric.name} is a {metric.kind}"
        with self._lock:
            if metric.name not in self._counters:
                self._counters[metric.name] = Counter(
                    metric.name, metric.meaning, metric.labels, registry=self.registry
                )
            return self._counters[metric.name]

    def gauge(self, metric: Metric) -> Gauge:
        assert metric.kind == "gauge", f"{metric.name} is a {metric.kind}"
        with self._lock:
            if metric.name not in self._gauges:
                self._gauges[metric.name] = Gauge(
                    metric.name, metric.meaning, metric.labels, registry=self.registry
                )
            return self._gauges[metric.name]

    def histogram(self, metric: Metric) -> Histogram:
        assert metric.kind == "histogram", f"{metric.name} is a {metric.kind}"
        with self._lock:
            if metric.name not in self._histograms:
                self._histograms[metric.name] = Histogram(
                    metric.name,
                    metric.meaning,
                    metric.labels,
                    registry=self.registry,
                    buckets=metric.buckets,
                )
            return self._histograms[metric.name]

    def serve(self, *, host: str, port: int) -> None:
        """Answer GET /metrics in a thread of its own until the process ends."""
        start_http_server(port, addr=host, registry=self.registry)
