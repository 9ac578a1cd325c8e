"""Limits the connections of a process, so that one peer's idle connections do not exclude others.

When there is no room, the peer with the most connections loses those that would be closed soonest:
first those with late request heads, then idle ones. Behind a load balancer all connections are the
balancer's, so no peer has a fixed share.
"""

import heapq
import resource
from ipaddress import IPv6Address
from typing import Protocol

import structlog

log = structlog.get_logger()

# Descriptors for other purposes: connections to each broker, files, probes, a schema process.
_DESCRIPTORS_KEPT = 256
# Close a 64th of all connections at a time, because finding them means checking each one.
_MADE_ROOM_PART = 64
# The part of an IPv6 address that is usually the same for one household or one machine.
_NETWORK_BYTES = 8


class Closable(Protocol):
    """A connection that a crowd may close."""

    @property
    def closes_at_s(self) -> float | None:
        """When it would be closed if nothing arrived; None while it has a request."""

    def close(self) -> None: ...


class Crowd:
    """The open connections of one process, by peer."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self._of_peer: dict[str | bytes, set[Closable]] = {}

    def enter(self, connection: Closable, address: str) -> bool:
        """Enter a connection; return False if there is no room for it."""
        if self.count >= self.count_max and not self._make_room():
            return False
        self.count += 1
        self._of_peer.setdefault(_peer(address), set()).add(connection)
        return True

    def leave(self, connection: Closable, address: str) -> None:
        self._forget(connection, _peer(address))

    def _forget(self, connection: Closable, peer: str | bytes) -> None:
        of_peer = self._of_peer.get(peer, set())
        if connection in of_peer:
            self.count -= 1
            of_peer.discard(connection)
            if not of_peer:
                del self._of_peer[peer]

    def _make_room(self) -> bool:
        """Close idle connections of the peer with the most; return False if none are idle."""
        by_size = sorted(self._of_peer.items(), key=lambda item: len(item[1]), reverse=True)
        for peer, of_peer in by_size:
            idle = [(at_s, each) for each in of_peer if (at_s := each.closes_at_s) is not None]
            if idle:
                count = max(1, self.count_max // _MADE_ROOM_PART)
                for _, connection in heapq.nsmallest(count, idle, key=lambda one: one[0]):
                    connection.close()
                    self._forget(connection, peer)
                log.warning("connections.closed", open=self.count)
                return True
        log.warning("connections.refused", open=self.count)
        return False


def connections_max(wanted: int) -> int:
    """Return the wanted number of connections, or the number that the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _DESCRIPTORS_KEPT
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        wanted = min(wanted, max(soft - _DESCRIPTORS_KEPT, 1))
    return wanted


def _peer(address: str) -> str | bytes:
    if ":" not in address:
        return address
    own = IPv6Address(address.partition("%")[0])
    return str(own.ipv4_mapped) if own.ipv4_mapped else own.packed[:_NETWORK_BYTES]
