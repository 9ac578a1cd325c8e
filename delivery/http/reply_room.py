"""Bounds the memory that long reports take in a worker.

A report gets its room before the worker reads more of it than of other replies. A report without
room waits to be read; one tenant gets at most a quarter of the room.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

_BYTES_MAX = 64 * 1_048_576
_TENANTS_PART = 4


@dataclass(slots=True, eq=False)
class RoomPlace:
    """The bytes that one report needs, and the function to call when it has them."""

    tenant: str
    byte_count: int
    go_on: Callable[[], None]
    is_taken: bool = False


class ReplyRoom:
    """The room of one worker."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._byte_counts: Counter[str] = Counter()
        # Oldest first.
        self._waiting: dict[RoomPlace, None] = {}

    @property
    def used_bytes(self) -> int:
        return self._byte_counts.total()

    def enter(self, place: RoomPlace) -> None:
        """Take a place now or later; call its `go_on` when it is taken."""
        self._waiting[place] = None
        self._admit()

    def leave(self, place: RoomPlace) -> None:
        """Release a place, or stop waiting for it."""
        if place.is_taken:
            place.is_taken = False
            self._byte_counts[place.tenant] -= place.byte_count
        else:
            self._waiting.pop(place, None)
        self._admit()

    def _admit(self) -> None:
        for place in tuple(self._waiting):
            of_tenant = self._byte_counts[place.tenant] + place.byte_count
            if of_tenant > self._bytes_max // _TENANTS_PART:
                continue
            if self.used_bytes + place.byte_count > self._bytes_max:
                continue
            del self._waiting[place]
            self._byte_counts[place.tenant] = of_tenant
            place.is_taken = True
            place.go_on()
