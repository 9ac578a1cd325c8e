"""How long the console keeps connections on which nothing is asked."""

import socket

from tests.support.console.console_fixtures import RunningConsole


def _is_open(wire: socket.socket) -> bool:
    """Whether nobody hangs up for as long as the socket waits, once all has come."""
    try:
        while wire.recv(65_536):
            pass
    except TimeoutError:
        return True
    return False


def test_behind_a_balancer_no_request_meets_the_end_of_an_idle_connection(
    console: RunningConsole,
) -> None:
    """uvicorn by itself hangs up after 5 s, and a balancer that asks just then says 502."""
    ask = b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", console.port), timeout=6) as wire:
        wire.sendall(ask)
        assert _is_open(wire)
        wire.sendall(ask)
        assert wire.recv(16).startswith(b"HTTP/1.1 ")
