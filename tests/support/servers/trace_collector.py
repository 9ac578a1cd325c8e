"""A collector of OpenTelemetry spans, as a process: takes OTLP over HTTP, shows it at /spans.

It follows the protocol's rules for JSON: ids in hex, times as text, nothing of the wrong type.
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

_IDS = {"traceId": 32, "spanId": 16, "parentSpanId": 16}


def _read(document: dict[str, Any], authorization: str | None) -> Iterator[dict[str, Any]]:
    for resource in document["resourceSpans"]:
        process = _values(resource["resource"]["attributes"])
        service = process["service.name"]
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name, length in _IDS.items():
                    if name != "parentSpanId" or name in span:
                        assert re.fullmatch(f"[0-9a-f]{{{length}}}", span[name]), span
                assert 0 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
                assert span["kind"] in {1, 2, 3, 4}
                assert span["status"] in ({}, {"code": 2})
                values = _values(span["attributes"])
                told = {"service": service, "resource": process, "by": authorization}
                yield span | {"attributes": values} | told


def _values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in attributes:
        ((kind, value),) = each["value"].items()
        assert isinstance(value, str)
        found[each["key"]] = {"stringValue": str, "intValue": int}[kind](value)
    return found


class _Handler(BaseHTTPRequestHandler):
    spans: list[dict[str, Any]] = []  # noqa: RUF012 - of the process
    lock = threading.Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            assert self.path in {"/v1/traces", "/collect?all=1"}
            assert self.headers["content-type"] == "application/json"
            spans = list(_read(json.loads(body), self.headers["authorization"]))
        except (AssertionError, KeyError, ValueError) as error:
            self._answer(400, repr(error).encode())
            return
        with self.lock:
            self.spans.extend(spans)
        self._answer(200, b"{}")

    def do_GET(self) -> None:
        with self.lock:
            self._answer(200, json.dumps(self.spans).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@dataclass(frozen=True)
class TraceCollector:
    url: str

    def spans(self, trace_id: str) -> list[dict[str, Any]]:
        """Return the spans of a trace that have arrived."""
        told: list[dict[str, Any]] = httpx.get(f"{self.url}/spans").json()
        return [span for span in told if span["traceId"] == trace_id]


@contextmanager
def trace_collector() -> Iterator[TraceCollector]:
    command = [sys.executable, "-m", "tests.support.servers.trace_collector"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield TraceCollector(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.terminate()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)  # noqa: T201 - read by whoever started it
    server.serve_forever()
