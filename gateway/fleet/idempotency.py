"""Keeps the outcome of each Idempotency-Key, from the topic of requests (ADR 0060).

Pure: records in, verdicts out. Every gateway reads the same records in the same order, so all reach
the same verdict on a claim: if two requests claim a key at the same time, the first in the log gets
it. The only clock is the log's own. Memory is bounded; the tenant that uses most of it loses its
oldest keys first.
"""

import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import msgspec

from gateway.answers import Answer
from gateway.problems import Problem
from shared.event.topics import REQUESTS_RETENTION_MS

# draft-ietf-httpapi-idempotency-key-header sets no limit; Stripe's is 255.
KEY_LENGTH_MAX = 255
# Final answers. After any other answer, the request may be repeated with its key.
_FINAL = frozenset({200, 204, 207, 422})
_SERVER_FAULT = 500
# Bytes that a key takes besides its answer (measured: 520).
ENTRY_BYTES = 600
# Longer answers list events one by one, and compress well. If one is still too long, its list is
# dropped: a Kafka record has at most a million bytes, and memory must hold many answers.
_PACKED_FROM_BYTES = 500
_BODY_BYTES_MAX = 262_144

# How a request ended. `open`: some events may not be stored, and it may be repeated with its key.
# `free`: it was refused and stored nothing, so a corrected request may use its key.
Ending = Literal["answered", "open", "free"]


class RequestRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record about one key: a gateway's claim, or how the request ended."""

    # The claim's unique number.
    claim: bytes
    tenant: str
    # A digest of everything that the events are made from.
    content: bytes
    # How long a claim lasts. If no end was recorded by then, its gateway has died.
    holds_ms: int = 0
    ended: Ending | None = None
    # For `open`: some events may be stored.
    is_sent: bool = False
    status: int = 0
    body: bytes = b""
    is_packed: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def answer(self) -> Answer:
        body = zlib.decompress(self.body) if self.is_packed else self.body
        headers = tuple((name.encode(), value.encode()) for name, value in self.headers)
        return Answer(self.status, body, headers)

    def end(self, answer: Answer | None, *, is_sent: bool) -> "RequestRow":
        """Return the row that ends this claim; `open` without an answer."""
        ending = RequestRow(self.claim, self.tenant, self.content, ended="open", is_sent=is_sent)
        if answer is None or not answer.is_final:
            return ending
        if answer.status in _FINAL:
            body, is_packed = _pack(answer.body)
            return msgspec.structs.replace(
                ending,
                ended="answered",
                status=int(answer.status),
                body=body,
                is_packed=is_packed,
                headers=tuple((name.decode(), value.decode()) for name, value in answer.headers),
            )
        if answer.status < _SERVER_FAULT:
            return msgspec.structs.replace(ending, ended="free")
        return ending


class Won(msgspec.Struct, frozen=True):
    """The claim is valid. Events of an earlier claim may be in the log from `since_ms` on."""

    since_ms: int | None = None


# The verdict on a claim: the claim gets the key, the first request's answer, or a refusal.
Verdict = Won | RequestRow | Problem


class _Entry(msgspec.Struct, gc=False):
    """The newest valid record of a key."""

    row: RequestRow
    at_ms: int
    # The earliest time at which the key's events may have been stored.
    since_ms: int | None = None

    @property
    def byte_count(self) -> int:
        return ENTRY_BYTES + len(self.row.body)


class KeyBook:
    """The outcomes of keys. Beyond its bytes, it drops the oldest keys of the largest tenant."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tenants: dict[str, OrderedDict[bytes, _Entry]] = {}
        self._byte_counts: dict[str, int] = {}
        self.byte_count = 0
        self._newest_ms = 0

    def known(self, key: bytes, claim: RequestRow) -> Verdict | None:
        """Return a verdict that needs no claim: an answer, which cannot change any more."""
        entry = self._entry(key, claim.tenant)
        if entry is None or entry.row.ended != "answered":
            return None
        verdict = _verdict(entry, claim, self._newest_ms)
        # An answer that is too old does not count.
        return None if isinstance(verdict, Won) else verdict

    def take(self, key: bytes, raw: bytes, at_ms: int) -> tuple[RequestRow, Verdict | None]:
        """Process the next record; return a claim's verdict. Malformed ones raise ValueError."""
        row = msgspec.json.decode(raw, type=RequestRow)
        self._newest_ms = max(self._newest_ms, at_ms)
        entry, verdict = self._entry(key, row.tenant), None
        if row.ended is None:
            verdict = Won() if entry is None else _verdict(entry, row, at_ms)
            if isinstance(verdict, Won):
                self._put(key, _Entry(row, at_ms, verdict.since_ms))
        elif entry is None or entry.row.claim == row.claim:
            # The end of a claim counts only if no other claim has replaced it.
            since_ms = None if entry is None else entry.since_ms
            if since_ms is None and row.ended == "free":
                self._drop(key, row.tenant)
            else:
                if since_ms is None and row.is_sent and entry is not None:
                    since_ms = entry.at_ms
                self._put(key, _Entry(row, at_ms, since_ms))
        self._forget()
        return row, verdict

    def _entry(self, key: bytes, tenant: str) -> _Entry | None:
        entries = self._tenants.get(tenant)
        return None if entries is None else entries.get(key)

    def _put(self, key: bytes, entry: _Entry) -> None:
        tenant = entry.row.tenant
        self._drop(key, tenant)
        self._tenants.setdefault(tenant, OrderedDict())[key] = entry
        self._byte_counts[tenant] = self._byte_counts.get(tenant, 0) + entry.byte_count
        self.byte_count += entry.byte_count

    def _drop(self, key: bytes, tenant: str) -> None:
        entries = self._tenants.get(tenant)
        entry = None if entries is None else entries.pop(key, None)
        if entries is None or entry is None:
            return
        self._byte_counts[tenant] -= entry.byte_count
        self.byte_count -= entry.byte_count
        if not entries:
            del self._tenants[tenant], self._byte_counts[tenant]

    def _forget(self) -> None:
        """Drop the oldest keys while there are too many, but never those of requests in flight."""
        while self.byte_count > self._bytes_max:
            tenant = max(self._byte_counts, key=self._byte_counts.__getitem__)
            for key, entry in self._tenants[tenant].items():
                if not _is_under_way(entry, self._newest_ms):
                    self._drop(key, tenant)
                    break
            else:
                # There are only few requests in flight, as gateways bound them.
                return


def _is_under_way(entry: _Entry, at_ms: int) -> bool:
    return entry.row.ended is None and at_ms - entry.at_ms <= entry.row.holds_ms


def _verdict(entry: _Entry, claim: RequestRow, at_ms: int) -> Verdict:
    if at_ms - entry.at_ms > REQUESTS_RETENTION_MS:
        return Won()
    if entry.row.content != claim.content:
        return Problem(
            "idempotency_key_reused",
            "This Idempotency-Key was used for other events: with another body, or with other"
            " headers that belong to them. A new request needs a new key.",
        )
    if entry.row.ended == "answered":
        return entry.row
    if entry.row.ended is not None:
        return Won(entry.since_ms)
    if not _is_under_way(entry, at_ms):
        return Won(entry.since_ms or entry.at_ms)
    return Problem(
        "idempotency_key_in_use",
        "The first request with this Idempotency-Key has no answer yet; ask again later.",
        headers=((b"retry-after", b"1"),),
    )


def digest_of(content: Sequence[bytes]) -> bytes:
    """Return a digest of all parts that the events are made from."""
    parts = [hashlib.sha256(part).digest() for part in content]
    return hashlib.sha256(b"".join(parts)).digest()[:16]


def id_base(scope: str) -> str:
    """Return the prefix for ids of events that have none; it is the same for each repetition."""
    return "ik-" + hashlib.sha256(scope.encode()).hexdigest()[:32]


def _pack(body: bytes) -> tuple[bytes, bool]:
    """Return a body in its stored form, and whether that is compressed."""
    if len(body) <= _PACKED_FROM_BYTES:
        return body, False
    packed = zlib.compress(body, 1)
    if len(packed) <= _BODY_BYTES_MAX:
        return packed, True
    members = msgspec.json.decode(body)
    members.pop("results", None)
    return msgspec.json.encode(members), False
