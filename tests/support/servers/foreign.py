"""Starts servers that others have written."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

_STARTS_WITHIN_S = 20.0


def started(*words: str, port: int) -> subprocess.Popen[bytes]:
    """Start a server; return its process once it accepts connections."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + _STARTS_WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert child.poll() is None, f"{words[0]} ended"
            assert time.monotonic() < until_s, f"{words[0]} does not start"
            time.sleep(0.05)
        else:
            return child


@contextmanager
def running(*words: str, port: int) -> Iterator[None]:
    """Run a server during the block."""
    child = started(*words, port=port)
    try:
        yield
    finally:
        child.kill()
        child.wait(10)
