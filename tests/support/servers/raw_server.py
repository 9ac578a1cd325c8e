"""Gives tests a server that does exactly what a test wants to a connection."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def raw_server(behave: Callable[[socket.socket], object]) -> Iterator[str]:
    """Run a server that passes each connection to `behave`, one after the other."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            behave(connection)

    with accepting(serve) as port:
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def accepting(take: Callable[[socket.socket], object]) -> Iterator[int]:
    """Accept connections in a thread, and pass each to `take`; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            take(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        # Only a shutdown wakes a blocked accept, not a close.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def read_request(connection: socket.socket) -> bytes:
    """Read a request whose body is [1]."""
    received = b""
    while not received.endswith(b"[1]"):
        more = connection.recv(65_536)
        if not more:
            raise ConnectionError
        received += more
    return received
