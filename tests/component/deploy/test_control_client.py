"""The client of the control API changes an object only if it is still as it was read."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from shared.runtime.control_client import ControlClient, RefusedError


class Gateway(BaseHTTPRequestHandler):
    """A gateway with one object, which accepts changes of its current version only."""

    etag: ClassVar[str] = '"1"'
    asked: ClassVar[list[tuple[str, str, str | None]]] = []

    def do_GET(self) -> None:
        self._answer(200, {"url": "https://a.example/"})

    def do_PUT(self) -> None:
        expected = self.headers["if-match"] or self.headers["if-none-match"]
        self.asked.append((self.command, self.path, expected))
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if expected not in {None, self.etag}:
            detail = "Somebody else has changed auth, url: read it again."
            self._answer(412, {"code": "changed_meanwhile", "detail": detail})
            return
        self._answer(200, {})

    do_POST = do_DELETE = do_PUT  # noqa: N815 - as the base class has them

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.send_header("etag", self.etag)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def client() -> Iterator[ControlClient]:
    Gateway.etag, Gateway.asked = '"1"', []
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield ControlClient(f"http://127.0.0.1:{server.server_port}", None)
        server.shutdown()
        serving.join()


PATH = "streams", "orders", "destinations", "lake"


def test_what_was_not_read_is_changed_as_it_is(client: ControlClient) -> None:
    client.call("PUT", *PATH, body={})
    assert Gateway.asked == [("PUT", "/v1/streams/orders/destinations/lake", None)]


def test_what_was_read_is_changed_only_if_it_is_still_so(client: ControlClient) -> None:
    client.call("GET", *PATH)
    client.call("PUT", *PATH, body={})
    client.call("POST", *PATH, "resume")
    client.call("DELETE", *PATH)
    assert [expected for _, _, expected in Gateway.asked] == ['"1"'] * 3
    Gateway.etag = '"2"'
    with pytest.raises(
        RefusedError, match="412 changed_meanwhile: Somebody else has changed auth, url"
    ):
        client.call("POST", *PATH, "resume")


def test_a_version_that_somebody_was_shown_counts(client: ControlClient) -> None:
    client.expect('"0"', *PATH)
    with pytest.raises(RefusedError) as refused:
        client.call("PUT", *PATH, body={})
    assert (refused.value.status, refused.value.code) == (412, "changed_meanwhile")


def test_what_is_new_overwrites_nothing(client: ControlClient) -> None:
    client.expect_none(*PATH)
    with pytest.raises(RefusedError, match="changed_meanwhile"):
        client.call("PUT", *PATH, body={})
    assert Gateway.asked == [("PUT", "/v1/streams/orders/destinations/lake", "*")]
