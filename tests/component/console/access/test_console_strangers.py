"""Callers of the console's port without a key cannot slow the observer in the same process."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from console import server
from tests.support.console.console_fixtures import RunningConsole, overview, running_console

ROOM = 16
PATIENCE_S = 20.0


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningConsole]:
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", ROOM)
    monkeypatch.setattr(server, "_HEAD_DEADLINE_S", 1.0)
    with running_console("off") as running:
        running.show(overview())
        yield running


def stranger(console: RunningConsole, said: bytes) -> socket.socket:
    wire = socket.create_connection(("127.0.0.1", console.port), timeout=PATIENCE_S)
    wire.sendall(said)
    return wire


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhost: a\r\n"])
def test_connections_that_say_nothing_or_half_a_head_are_closed(
    console: RunningConsole, said: bytes
) -> None:
    with stranger(console, said) as wire:
        answer = wire.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n" if said else b"")
    assert bool(answer) == bool(said)
    assert not said or answer.endswith(b"The request's headers did not arrive within 1 s.\n")


def test_many_connections_of_a_stranger_keep_no_viewer_out(console: RunningConsole) -> None:
    with ExitStack() as resources:
        until_s = time.monotonic() + PATIENCE_S
        for _ in range(4 * ROOM):
            resources.enter_context(stranger(console, b"GET / HTTP/1.1\r\n"))
        with httpx.Client(base_url=console.url, timeout=PATIENCE_S) as viewer:
            assert viewer.get("/").status_code == 200
        assert time.monotonic() < until_s


def test_a_head_without_an_end_is_refused(console: RunningConsole) -> None:
    with stranger(console, b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 40_000) as wire:
        assert wire.makefile("rb").readline() == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
