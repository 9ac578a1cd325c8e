"""Keeps connections that wait for their next request: not for long, and not too many."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

# Shorter than the idle limits of common servers (uvicorn 5 s, nginx 75 s): we close first.
KEEP_ALIVE_S = 4.0
# The maximum for all destinations of a worker process together. With the connections in use and the
# files of flows, this is well below the descriptors that a worker asks for (worker_daemon.py).
IDLE_MAX = 512


class ReusableConnection(Protocol):
    """An open connection, of whichever transport."""

    used_at_s: float

    @property
    def is_usable(self) -> bool:
        """Whether another exchange can be tried."""

    def abort(self) -> None:
        """Close at once."""


_Reusable = TypeVar("_Reusable", bound=ReusableConnection)


@dataclass(slots=True)
class IdleConnections:
    """The idle connections of a worker, in one place for each transport."""

    # Each connection with its place; the longest idle one is first.
    _places: dict[ReusableConnection, list[Any]] = field(default_factory=dict)

    def put(self, connection: _Reusable, place: list[_Reusable]) -> None:
        place.append(connection)
        self._places[connection] = place
        if len(self._places) > IDLE_MAX:
            # The transport with the most idle connections loses the one that is idle longest; among
            # equal ones, the longest idle connection decides.
            self._close(max(self._places.values(), key=len)[0])

    def take(self, place: list[_Reusable]) -> _Reusable | None:
        """Return the connection that was used last, so that the others can expire."""
        while place:
            connection = place.pop()
            del self._places[connection]
            if not _is_old(connection) and connection.is_usable:
                return connection
            connection.abort()
        return None

    def close(self, place: list[_Reusable]) -> None:
        for connection in tuple(place):
            self._close(connection)

    def close_old(self) -> None:
        for connection in tuple(self._places):
            if not _is_old(connection):
                return
            self._close(connection)

    def _close(self, connection: ReusableConnection) -> None:
        self._places.pop(connection).remove(connection)
        connection.abort()


def _is_old(connection: ReusableConnection) -> bool:
    return connection.used_at_s < asyncio.get_running_loop().time() - KEEP_ALIVE_S
