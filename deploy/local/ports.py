"""Checks requested loopback ports, and picks free ones that stay free."""

import secrets
import socket

from shared.runtime.defaults import HOST
from shared.runtime.setup_error import SetupError

# Below the range of outgoing connections (Linux from 32768, macOS from 49152): any client could
# take a port in that range while a broker restarts.
_FREE_FIRST, _FREE_LAST = 20_000, 32_000
_TRIES_MAX = 200


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        # Java sets this too: a connection that lingers from the last run does not block the port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Return whether anything accepts connections on this port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def pick_free(count: int) -> list[int]:
    """Return different free ports, drawn at random, so that two clusters rarely draw the same."""
    picked: list[int] = []
    for _ in range(_TRIES_MAX):
        if len(picked) == count:
            return picked
        port = _FREE_FIRST + secrets.randbelow(_FREE_LAST - _FREE_FIRST)
        if port not in picked and is_free(port):
            picked.append(port)
    raise SetupError(
        f"No free port was found between {_FREE_FIRST} and {_FREE_LAST} on {HOST}: "
        "stop something that listens there, or name the ports yourself."
    )


def require_free(port: int, *, what: str) -> None:
    if not is_free(port):
        raise SetupError(
            f"Port {port} on {HOST}, needed for {what}, is in use: stop the program that uses it "
            f"(`lsof -i :{port}` names it), or choose another port."
        )
