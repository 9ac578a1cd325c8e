"""Remembers which events were taken, so that a duplicate is not taken again."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol


class Seen(Protocol):
    """The memory that a receiver needs; you may pass your own, for example in a database."""

    def known(self, ids: Iterable[str]) -> set[str]:
        """Return the ids that were added before."""

    def add(self, ids: Iterable[str]) -> None:
        """Add the ids of taken events."""


class SeenInMemory:
    """Remembers the newest `count_max` ids, for this process only."""

    def __init__(self, count_max: int = 100_000) -> None:
        self._count_max = count_max
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, ids: Iterable[str]) -> set[str]:
        with self._lock:
            return {each for each in ids if each in self._ids}

    def add(self, ids: Iterable[str]) -> None:
        with self._lock:
            for each in ids:
                self._ids[each] = None
                self._ids.move_to_end(each)
            while len(self._ids) > self._count_max:
                self._ids.popitem(last=False)
