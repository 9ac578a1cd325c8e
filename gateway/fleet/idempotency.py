"""Keeps the outcome of each Idempotency-Key, as the topic of requests tells it (ADR 0060).

Pure: records in, verdicts out. Every gateway takes the same records in the same order, so all come
to the same verdict on a claim: if two requests claim a key at the same time, the first in the log
has it. The only clock is the log's own. Memory is bounded, and the tenant that holds most forgets
first.
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

# draft-ietf-httpapi-idempotency-key-header leaves it open; Stripe takes 255.
KEY_LENGTH_MAX = 255
# Answers that leave nothing to do. After any other one the request may come again with its key.
_FINAL = frozenset({200, 204, 207, 422})
_SERVER_FAULT = 500
# Bytes that a key takes besides its answer (measured: 520).
ENTRY_BYTES = 600
# Longer answers list events one by one, and pack well. If one is too long even so, only its list is
# dropped: a record of Kafka has a million bytes, and memory is for many answers.
_PACKED_FROM_BYTES = 500
_BODY_BYTES_MAX = 262_144

# How a request ended. `open`: some of it may not be stored, and it may be sent again under its key.
# `free`: it was refused before it became a request, and a corrected one may use its key.
Ending = Literal["answered", "open", "free"]


class RequestRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record about one key: a gateway's claim, or how the request ended."""

    # The number of the claim, which is unique.
    claim: bytes
    tenant: str
    # A digest of all that becomes the events.
    content: bytes
    # How long a claim holds: after that its gateway has died, or has ended without a word.
    holds_ms: int = 0
    ended: Ending | None = None
    # For an open end: some events may be stored.
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
        """Return the row that ends this claim; without an answer nobody knows how it ended."""
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
    """The claim holds. Events of an earlier claim of the key may be in the log since then."""

    since_ms: int | None = None


# The verdict on a claim: the key is ours, the first answer, or the reason against both.
Verdict = Won | RequestRow | Problem


class _Entry(msgspec.Struct, gc=False):
    """The newest record of a key that counts."""

    row: RequestRow
    at_ms: int
    # The time since when its events may be in the log.
    since_ms: int | None = None

    @property
    def byte_count(self) -> int:
        return ENTRY_BYTES + len(self.row.body)


class KeyBook:
    """The outcomes of the keys. The oldest are forgotten first, those of the largest tenant."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tenants: dict[str, OrderedDict[bytes, _Entry]] = {}
        self._byte_counts: dict[str, int] = {}
        self.byte_count = 0
        self._newest_ms = 0

    def known(self, key: bytes, claim: RequestRow) -> Verdict | None:
        """Return what is certain without a claim: an answer, which nothing changes any more."""
        entry = self._entry(key, claim.tenant)
        if entry is None or entry.row.ended != "answered":
            return None
        verdict = _verdict(entry, claim, self._newest_ms)
        # An answer that is too old no longer counts.
        return None if isinstance(verdict, Won) else verdict

    def take(self, key: bytes, raw: bytes, at_ms: int) -> tuple[RequestRow, Verdict | None]:
        """Take in the next record, and judge a claim; ValueError if it makes no sense."""
        row = msgspec.json.decode(raw, type=RequestRow)
        self._newest_ms = max(self._newest_ms, at_ms)
        entry, verdict = self._entry(key, row.tenant), None
        if row.ended is None:
            verdict = Won() if entry is None else _verdict(entry, row, at_ms)
            if isinstance(verdict, Won):
                self._put(key, _Entry(row, at_ms, verdict.since_ms))
        elif entry is None or entry.row.claim == row.claim:
            # The end of a claim that another one has overtaken does not count.
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
        """Drop the oldest while there is too much, but never a request under way."""
        while self.byte_count > self._bytes_max:
            tenant = max(self._byte_counts, key=self._byte_counts.__getitem__)
            for key, entry in self._tenants[tenant].items():
                if not _is_under_way(entry, self._newest_ms):
                    self._drop(key, tenant)
                    break
            else:
                # Requests under way are few: as many as gateways hold at a time.
                return


def _is_under_way(entry: _Entry, at_ms: int) -> bool:
    return entry.row.ended is None and at_ms - entry.at_ms <= entry.row.holds_ms


def _verdict(entry: _Entry, claim: RequestRow, at_ms: int) -> Verdict:
    if at_ms - entry.at_ms > REQUESTS_RETENTION_MS:
        return Won()
    if entry.row.content != claim.content:
        return Problem(
            "idempotency_key_reused",
            "This Idempotency-Key was sent with other events: another body, or other headers"
            " that belong to them. A new request needs a new key.",
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
    """Return a digest of everything that becomes the events, part by part."""
    parts = [hashlib.sha256(part).digest() for part in content]
    return hashlib.sha256(b"".join(parts)).digest()[:16]


def id_base(scope: str) -> str:
    """Return the prefix for ids of events without one: the same for each repetition."""
    return "ik-" + hashlib.sha256(scope.encode()).hexdigest()[:32]


def _pack(body: bytes) -> tuple[bytes, bool]:
    """Return a body in its stored form, and whether that is packed."""
    if len(body) <= _PACKED_FROM_BYTES:
        return body, False
    packed = zlib.compress(body, 1)
    if len(packed) <= _BODY_BYTES_MAX:
        return packed, True
    members = msgspec.json.decode(body)
    members.pop("results", None)
    return msgspec.json.encode(members), False
