"""Reports the outcome of each event; one object has those of all events of a batch."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, TypeAlias, overload


class Fate(StrEnum):
    """The outcome of an event; the first two mean success."""

    # Kafka has reported it stored.
    ACCEPTED = "accepted"
    # It is on this machine's disk, fsynced, and will be sent. Another fate follows, unless the
    # sender is closed first.
    SPOOLED = "spooled"
    # Hifi refuses it, and would refuse it again.
    REJECTED = "rejected"
    # Time was up, and it is certainly not in the log.
    NOT_STORED = "not_stored"
    # Time was up, and it may be in the log. If you send it again, use the same id.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one event, and its reason."""

    id: str
    fate: Fate
    # The gateway's code, such as schema_violation; empty if there is none.
    code: str = ""
    reason: str = ""
    pointer: str = ""

    @property
    def is_yes(self) -> bool:
        return self.fate in {Fate.ACCEPTED, Fate.SPOOLED}


log = logging.getLogger("hifi_client")

Told: TypeAlias = Callable[[Outcome], object]
_LEFT = "The sender was closed before it sent the event; the spool's next sender will send it."


class Fates:
    """The fates of one batch's events. Only callers that wait for a fate hold a reference."""

    __slots__ = (
        *("__weakref__", "_callbacks", "_changed"),
        *("_is_accepted", "_is_left", "_is_spooled", "_told"),
    )

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_spooled = self._is_accepted = self._is_left = False
        # Outcomes of single events, by their place in the batch.
        self._told: dict[int, Outcome] = {}
        self._callbacks: list[tuple[int, str, Told]] = []

    def outcome(self, nth: int, event_id: str) -> Outcome | None:
        """Return the final outcome, or None while there is none."""
        if nth in self._told:
            return self._told[nth]
        if self._is_accepted:
            return Outcome(event_id, Fate.ACCEPTED)
        return Outcome(event_id, Fate.SPOOLED, reason=_LEFT) if self._is_left else None

    def answer(self, nth: int, event_id: str) -> Outcome | None:
        """Return the first success or failure, or None while there is none."""
        final = self.outcome(nth, event_id)
        if final is None and self._is_spooled:
            return Outcome(event_id, Fate.SPOOLED)
        return final

    def all_spooled(self) -> None:
        with self._changed:
            self._is_spooled = True
            self._changed.notify_all()

    def all_accepted(self) -> None:
        """Mark all events without an outcome as accepted."""
        with self._changed:
            self._is_accepted = True
        self._say()

    def all_left(self) -> None:
        """Leave all events in the spool, as the sender is closed; its next owner sends them."""
        with self._changed:
            self._is_left = True
        self._say()

    def tell(self, outcomes: dict[int, Outcome]) -> None:
        with self._changed:
            self._told.update(outcomes)
        self._say()

    def wait(
        self, look: Callable[[], Outcome | None], *, timeout_s: float | None
    ) -> Outcome | None:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while (found := look()) is None:
                left_s = None if until_s is None else until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                self._changed.wait(left_s)
        return found

    def call(self, nth: int, event_id: str, told: Told) -> None:
        """Call `told` with the final outcome, at once if there is one already."""
        with self._changed:
            found = self.outcome(nth, event_id)
            if found is None:
                self._callbacks.append((nth, event_id, told))
                _WATCHED.add(self)
                return
        _call(told, found)

    def _say(self) -> None:
        with self._changed:
            self._changed.notify_all()
            known = [(told, self.outcome(nth, name)) for nth, name, told in self._callbacks]
            left = [
                each
                for each, (_, found) in zip(self._callbacks, known, strict=True)
                if found is None
            ]
            self._callbacks = left
            if not left:
                _WATCHED.discard(self)
        for told, found in known:
            if found is not None:
                _call(told, found)


# Fates with callbacks, in case nothing else holds a reference to them.
_WATCHED: set[Fates] = set()


class Sent:
    """One event that a sender has taken. Wait for its outcome, await it, or get a callback."""

    __slots__ = ("_fates", "_nth", "id")

    def __init__(self, event_id: str, fates: Fates, nth: int) -> None:
        self.id = event_id
        self._fates = fates
        self._nth = nth

    @property
    def outcome(self) -> Outcome | None:
        """The final outcome; None while it is unknown."""
        return self._fates.outcome(self._nth, self.id)

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """Return the final outcome; raise TimeoutError if it is not known in time."""
        return self._wait(self._fates.outcome, timeout_s)

    def wait_safe(self, timeout_s: float | None = None) -> Outcome:
        """Return the first outcome: Kafka has it, this machine's disk has it, or it failed."""
        return self._wait(self._fates.answer, timeout_s)

    def on_outcome(self, told: Told) -> None:
        """Call `told` with the final outcome, from one of the sender's threads."""
        self._fates.call(self._nth, self.id, told)

    def __await__(self) -> Generator[Any, None, Outcome]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def told(outcome: Outcome) -> None:
            loop.call_soon_threadsafe(_give, future, outcome)

        self.on_outcome(told)
        return future.__await__()

    def _wait(self, look: Callable[[int, str], Outcome | None], timeout_s: float | None) -> Outcome:
        found = self._fates.wait(lambda: look(self._nth, self.id), timeout_s=timeout_s)
        if found is None:
            raise TimeoutError(f"The event {self.id} has no outcome after {timeout_s} s.")
        return found


# Consecutive events: their Fates, the place of the first one, and their number.
Stretch: TypeAlias = tuple[Fates, int, int]


class SentMany(Sequence[Sent]):
    """Events that a sender has taken together, in order; each Sent is made when it is read."""

    __slots__ = ("_ids", "_stretches")

    def __init__(self, ids: Sequence[str], stretches: Sequence[Stretch]) -> None:
        # Events that found no room have only ids.
        self._ids, self._stretches = ids, stretches

    def wait(self, timeout_s: float | None = None) -> list[Outcome]:
        """Return the final outcomes; raise TimeoutError if one is not known in time."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        return [
            sent.wait(None if until_s is None else max(0.0, until_s - time.monotonic()))
            for sent in self
        ]

    def __len__(self) -> int:
        return sum(count for _, _, count in self._stretches)

    def __iter__(self) -> Iterator[Sent]:
        ids = iter(self._ids)
        for fates, first, count in self._stretches:
            for nth, event_id in enumerate(islice(ids, count), first):
                yield Sent(event_id, fates, nth)

    @overload
    def __getitem__(self, index: int) -> Sent: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sent]: ...
    def __getitem__(self, index: int | slice) -> Sent | list[Sent]:
        if isinstance(index, slice):
            return list(self)[index]
        index = left = range(len(self))[index]
        for fates, first, count in self._stretches:
            if left < count:
                return Sent(self._ids[index], fates, first + left)
            left -= count
        raise AssertionError("there are as many ids as places")


def _call(told: Told, outcome: Outcome) -> None:
    """Call the callback; its error, such as a closed loop, must not affect other events."""
    try:
        told(outcome)
    except Exception:
        log.exception("The callback for the event %s failed.", outcome.id)


def _give(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
