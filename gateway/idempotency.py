"""Answers a repeated Idempotency-Key: with the first answer, after a wait, or with a refusal.

Only final answers are remembered. After an answer that says "not stored" or "unknown", of some
events or of all, the key is open again, so that the same request may be sent once more. What is
remembered is this process's own and bounded; events without ids get theirs from the key, so that
also another process, or this one after a restart, makes no new event of a repeated one: only a
duplicate that shows its id.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from gateway.answers import Answer
from gateway.problems import Problem

# draft-ietf-httpapi-idempotency-key-header leaves it open; Stripe takes 255.
KEY_LENGTH_MAX = 255
# Stripe and others forget after a day.
_KEPT_S = 24 * 3600.0
# Answers that leave nothing to be done: all else may be sent again under the same key.
_FINAL = frozenset({200, 202, 204, 207, 422})
_SERVER_FAULT = 500
# What an entry costs besides its answer: the key, the fingerprint and the object.
_ENTRY_BYTES = 600


@dataclass(slots=True)
class _Entry:
    fingerprint: bytes
    kept_until_s: float
    # None while the first request with this key has no final answer.
    answer: Answer | None = None
    is_under_way: bool = True

    @property
    def byte_count(self) -> int:
        return _ENTRY_BYTES + (len(self.answer.body) if self.answer else 0)


class Replays:
    """The keys that were seen. A scope is tenant, stream and key."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._byte_count = 0

    def begin(self, scope: str, content: Sequence[bytes], *, now_s: float) -> Answer | None:
        """The answer to repeat, or None when the request is to be served; Problem when neither.

        The content is everything that becomes the events.
        """
        parts = [hashlib.sha256(part).digest() for part in content]
        fingerprint = hashlib.sha256(b"".join(parts)).digest()
        self._forget(now_s)
        entry = self._entries.get(scope)
        if entry is None:
            self._add(scope, _Entry(fingerprint, now_s + _KEPT_S))
            return None
        if entry.fingerprint != fingerprint:
            raise Problem(
                "idempotency_key_reused",
                "This Idempotency-Key was sent with other events: another body, or other headers"
                " that belong to them. A new request needs a new key.",
            )
        if entry.is_under_way:
            raise Problem(
                "idempotency_key_in_use",
                "The first request with this Idempotency-Key has no answer yet; ask again later.",
                headers=((b"retry-after", b"1"),),
            )
        if entry.answer is None:
            entry.is_under_way = True
            return None
        return entry.answer

    def end(self, scope: str, answer: Answer | None) -> None:
        """Keep a final answer; None, or one that is not final, opens the key again."""
        entry = self._entries.pop(scope, None)
        if entry is None:
            return
        self._byte_count -= entry.byte_count
        entry.is_under_way = False
        if answer is not None and answer.is_final and answer.status in _FINAL:
            entry.answer = answer
        elif answer is not None and answer.is_final and answer.status < _SERVER_FAULT:
            # The request was refused before it was one: a corrected one may use the key.
            return
        self._add(scope, entry)

    def _add(self, scope: str, entry: _Entry) -> None:
        self._entries[scope] = entry
        self._byte_count += entry.byte_count

    def _forget(self, now_s: float) -> None:
        """Drop what is old, and the oldest when there is too much; never what is under way."""
        # A few from the old end: each request clears up more than it adds.
        for scope, entry in list(islice(self._entries.items(), 4)):
            is_too_much = self._byte_count > self._bytes_max
            if not is_too_much and entry.kept_until_s > now_s:
                return
            if entry.is_under_way:
                continue
            del self._entries[scope]
            self._byte_count -= entry.byte_count


def id_base(scope: str) -> str:
    """What ids of events without one begin with: the same for each repetition."""
    return "ik-" + hashlib.sha256(scope.encode()).hexdigest()[:32]
