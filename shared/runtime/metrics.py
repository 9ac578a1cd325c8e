"""Turns the catalogue's metrics into Prometheus ones: a registry and a port for each process.

The port also answers probes and other machines' requests for pages.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    make_wsgi_app,
    start_http_server,
)

from shared.metric_names import Metric
from shared.runtime.setup_error import SetupError

# By path, functions that answer a GET; the server's threads call them.
Pages: TypeAlias = Mapping[str, Callable[[], bytes]]
# Pages with a query's members as their argument.
Queries: TypeAlias = Mapping[str, Callable[[Mapping[str, str]], bytes]]
# By path, functions that return whether a probe passes, and a text.
Probes: TypeAlias = Mapping[str, Callable[[], tuple[bool, str]]]
_NO_PAGES: Pages = {}
_NO_QUERIES: Queries = {}
_NO_PROBES: Probes = {}

M = TypeVar("M", Counter, Gauge, Histogram)


class _Handler(WSGIRequestHandler):
    """Logs nothing, and limits the wait for a client, as each client holds a thread."""

    timeout = 10.0

    def handle(self) -> None:
        with suppress(TimeoutError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Drop the line: nobody reads it."""


class Metrics:
    """The metrics of one process. Each is created at its first use."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Several lanes' threads may create the same metric at once.
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

    def serve(
        self,
        *,
        host: str,
        port: int,
        probes: Probes = _NO_PROBES,
        pages: Pages = _NO_PAGES,
        queries: Queries = _NO_QUERIES,
        setting: str = "its metrics port",
    ) -> int:
        """Serve /metrics, probes and pages of JSON by their paths; return the port.

        The server has its own threads, so it can report a process that is stuck elsewhere.
        """
        try:
            server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise SetupError(
                f"Metrics and probes cannot be shown on {host}:{port} ({error.strerror}):"
                f" stop the program on that port, or set {setting}."
            ) from error
        server.RequestHandlerClass = _Handler
        metrics_page = make_wsgi_app(self.registry)

        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if (probe := probes.get(path)) is not None:
                is_well, text = probe()
                status = "200 OK" if is_well else "503 Service Unavailable"
                start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
                return [text.encode()]
            page = pages.get(path)
            if (query := queries.get(path)) is not None:
                asked = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
                page = partial(query, asked)
            if page is None:
                body: Iterable[bytes] = metrics_page(environ, start_response)
                return body
            start_response("200 OK", [("Content-Type", "application/json")])
            return [page()]

        server.set_app(answer)
        shown_on: int = server.server_port
        return shown_on
