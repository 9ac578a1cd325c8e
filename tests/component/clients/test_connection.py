"""The client reads all forms of answers: in pieces, in chunks, without a length, cut off."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hifi_client.errors import NoAnswerError
from hifi_client.sending.connection import Connection, read_target

_SAYS = b'{"accepted":1,"rejected":0}'
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 27\r\nX-Of: a\r\n\r\n" + _SAYS


class OneShotServer:
    def __init__(self) -> None:
        self.url, self.connections = "", 0


@contextmanager
def served(*pieces: bytes, is_closed_after: bool = False) -> Iterator[OneShotServer]:
    """Start a server that answers each request with the same pieces, one packet each."""
    listening = socket.create_server(("127.0.0.1", 0))
    found = OneShotServer()
    found.url = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def answer(connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connected:
            while b"\r\n\r\n" in connected.recv(65_536):
                for piece in pieces:
                    connected.sendall(piece)
                    threading.Event().wait(0.01)
                if is_closed_after:
                    return

    def accept() -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            found.connections += 1
            answer(connected)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


@pytest.mark.parametrize(
    ("pieces", "connections"),
    [
        ([_WHOLE], 1),
        ([_WHOLE[:9], _WHOLE[9:40], _WHOLE[40:60], _WHOLE[60:]], 1),
        ([_WHOLE.replace(b"X-Of", b"Connection: Keep-Alive\r\nX-Of")], 1),
        ([_WHOLE.replace(b"X-Of", b"connection: close\r\nX-Of")], 2),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", _WHOLE], 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + _WHOLE], 1),
        (
            [
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-of: a\r\n\r\n",
                b"5\r\n" + _SAYS[:5] + b"\r\n16\r\n" + _SAYS[5:] + b"\r\n0\r\n\r\n",
            ],
            1,
        ),
    ],
    ids=["whole", "in pieces", "kept alive", "closed", "continue", "continued at once", "chunks"],
)
def test_an_answer_is_read_however_it_comes(pieces: list[bytes], connections: int) -> None:
    with served(*pieces) as server:
        connection = Connection(read_target(server.url), timeout_s=5)
        for _ in range(2):
            answer = connection.post("/", {}, b"x")
            assert (answer.status, answer.body, answer.headers["x-of"]) == (200, _SAYS, "a")
        connection.close()
    assert server.connections == connections


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    with served(b"HTTP/1.1 200 OK\r\n\r\n", _SAYS, is_closed_after=True) as server:
        connection = Connection(read_target(server.url), timeout_s=5)
        assert [connection.post("/", {}, b"x").body for _ in range(2)] == [_SAYS, _SAYS]
        connection.close()


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}", b"SSH-2.0-x\r\n\r\n"]
)
def test_half_an_answer_is_none(said: bytes) -> None:
    with served(said, is_closed_after=True) as server:
        connection = Connection(read_target(server.url), timeout_s=5)
        with pytest.raises(NoAnswerError) as error:
            connection.post("/", {}, b"x")
        assert not error.value.is_unsent


@pytest.mark.parametrize("end", range(1, len(_WHOLE)))
def test_an_answer_that_is_cut_anywhere_is_none(end: int) -> None:
    """A head without its end was once read as an answer without a body."""
    with served(_WHOLE[:end], is_closed_after=True) as found:
        connection = Connection(read_target(found.url), timeout_s=5)
        with pytest.raises(NoAnswerError, match="did not answer") as caught:
            connection.post("/", {}, b"[]")
        assert not caught.value.is_unsent
        connection.close()
