"""Gives tests a server that does exactly what a test wants to a connection."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def raw_server(behave: Callable[[socket.socket], object]) -> Iterator[str]:
    """Run a server that reads a request and then passes the connection to `behave`."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    behave(connection)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
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
