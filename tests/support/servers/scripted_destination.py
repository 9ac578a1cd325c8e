"""A real HTTP destination for tests: it keeps its requests and answers as a test says."""

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    headers: dict[str, str]
    body: bytes
    received_s: float

    @property
    def events(self) -> list[Any]:
        events: list[Any] = json.loads(self.body)
        return events


@dataclass(frozen=True)
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    delay_s: float = 0.0
    # Close the connection without a reply.
    breaks_off: bool = False


# Returns the answer, given the number of earlier requests and the request itself.
Script = Callable[[int, Request], Reply]


def always(status: int, **headers: str) -> Script:
    return lambda _, __: Reply(status, {k.replace("_", "-"): v for k, v in headers.items()})


def in_turn(*statuses: int) -> Script:
    """Answer with each status once, and then always with the last one."""
    return lambda number, _: Reply(statuses[min(number, len(statuses) - 1)])


class _Server(ThreadingHTTPServer):
    # With the default of five, if more clients connect at once, some would be a second late.
    request_queue_size = 128


class ScriptedDestination:
    def __init__(self, script: Script, certificate: tuple[Path, Path] | None = None) -> None:
        self.script = script
        self._scheme = "https" if certificate else "http"
        self.requests: list[Request] = []
        # Only requests with a 2xx answer: those that the destination claims to have.
        self.accepted: list[Request] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            # Each connection's handshake is in its own thread.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/hook"

    @property
    def accepted_ids(self) -> Counter[str]:
        with self._lock:
            return Counter(event["id"] for request in self.accepted for event in request.events)

    def wait_for(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until the condition holds; check it after each request."""
        until_s = time.monotonic() + timeout_s
        while not condition():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            with self._changed:
                self._changed.wait(min(left_s, 0.2))
        return True

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        destination = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Send head and body of a reply together; Nagle would hold the body back for 40 ms.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    # The sender died in the middle; no destination accepts half a request.
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(headers, body, time.monotonic())
                with destination._lock:
                    number = len(destination.requests)
                    destination.requests.append(request)
                reply = destination.script(number, request)
                time.sleep(reply.delay_s)
                if reply.breaks_off:
                    self.close_connection = True
                else:
                    self._answer(reply)
                with destination._changed:
                    if 200 <= reply.status <= 299 and not reply.breaks_off:
                        destination.accepted.append(request)
                    destination._changed.notify_all()

            def _answer(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def scripted_destination(
    script: Script | None = None, *, certificate: tuple[Path, Path] | None = None
) -> Iterator[ScriptedDestination]:
    """Run a destination; with a certificate and its key, it speaks HTTPS."""
    destination = ScriptedDestination(script or always(200), certificate)
    destination.start()
    try:
        yield destination
    finally:
        destination.stop()
