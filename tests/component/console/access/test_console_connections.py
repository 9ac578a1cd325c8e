"""How long the console keeps idle connections."""

import socket

from tests.support.console.console_fixtures import RunningConsole


def _is_open(wire: socket.socket) -> bool:
    """Read everything, and say whether the connection stays open until the socket times out."""
    try:
        while wire.recv(65_536):
            pass
    except TimeoutError:
        return True
    return False


def test_behind_a_balancer_no_request_meets_the_end_of_an_idle_connection(
    console: RunningConsole,
) -> None:
    """uvicorn's default closes after 5 s; a balancer that sends a request just then answers 502."""
    ask = b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", console.port), timeout=6) as wire:
        wire.sendall(ask)
        assert _is_open(wire)
        wire.sendall(ask)
        assert wire.recv(16).startswith(b"HTTP/1.1 ")
