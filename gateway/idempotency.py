"""Keeps what became of each Idempotency-Key, as the topic of requests tells it (ADR 0060).

Pure: records in, verdicts out. Every gateway takes the same records in the same order, so all come
to the same verdict on a claim: of two that claim a key at the same time, the first in the log has
it. The only clock is the log's own. What is kept is bounded, and the tenant that holds most forgets
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
# Answers that leave nothing to be done: all else may be sent again under the same key.
_FINAL = frozenset({200, 204, 207, 422})
_SERVER_FAULT = 500
# What is kept of a key besides its answer (measured: 520).
ENTRY_BYTES = 600
# Longer answers list events one by one, and pack well. One that is longer even so is remembered
# without its list: a record of Kafka has a million bytes, and memory is for many answers.
_PACKED_FROM_BYTES = 500
_BODY_BYTES_MAX = 262_144

# How a request ended. `open`: not all of it is certainly stored, and it may be sent again under its
# key. `free`: it was refused before it was one, and a corrected one may use its key.
Ending = Literal["answered", "open", "free"]


class RequestRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record about one key: that a gateway claims it, or how the request ended."""

    # Whose claim it is: a number that nobody else has.
    claim: bytes
    tenant: str
    # A digest of all that becomes the events.
    content: bytes
    # Of a claim: after so long its gateway has died, or is done without a word.
    holds_ms: int = 0
    ended: Ending | None = None
    # Of an open end: some events may be stored.
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
        """The row that ends what this one has claimed. None: nobody knows how it ended."""
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


# What a claim comes to: the key is ours, the first answer, or why neither.
Verdict = Won | RequestRow | Problem


class _Entry(msgspec.Struct, gc=False):
    """The newest that counts of what was said of a key."""

    row: RequestRow
    at_ms: int
    # Since when events of it may be in the log.
    since_ms: int | None = None

    @property
    def byte_count(self) -> int:
        return ENTRY_BYTES + len(self.row.body)


class KeyBook:
    """What became of the keys. The oldest are forgotten first, those of the largest tenant."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tenants: dict[str, OrderedDict[bytes, _Entry]] = {}
        self._byte_counts: dict[str, int] = {}
        self.byte_count = 0
        self._newest_ms = 0

    def known(self, key: bytes, claim: RequestRow) -> Verdict | None:
        """What can be said without a claim: that of an answer, which nothing changes any more."""
        entry = self._entry(key, claim.tenant)
        if entry is None or entry.row.ended != "answered":
            return None
        verdict = _verdict(entry, claim, self._newest_ms)
        # One that is too old is no answer any more.
        return None if isinstance(verdict, Won) else verdict

    def take(self, key: bytes, raw: bytes, at_ms: int) -> tuple[RequestRow, Verdict | None]:
        """The next record. For a claim also what it comes to; ValueError if it makes no sense."""
        row = msgspec.json.decode(raw, type=RequestRow)
        self._newest_ms = max(self._newest_ms, at_ms)
        entry, verdict = self._entry(key, row.tenant), None
        if row.ended is None:
            verdict = Won() if entry is None else _verdict(entry, row, at_ms)
            if isinstance(verdict, Won):
                self._put(key, _Entry(row, at_ms, verdict.since_ms))
        elif entry is None or entry.row.claim == row.claim:
            # Who was overtaken by another claim has nothing to say any more.
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
        """Drop the oldest where there is too much; never what is under way."""
        while self.byte_count > self._bytes_max:
            tenant = max(self._byte_counts, key=self._byte_counts.__getitem__)
            for key, entry in self._tenants[tenant].items():
                if not _is_under_way(entry, self._newest_ms):
                    self._drop(key, tenant)
                    break
            else:
                # Bounded by the requests that gateways hold at a time.
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
    """Of everything that becomes the events, part by part."""
    parts = [hashlib.sha256(part).digest() for part in content]
    return hashlib.sha256(b"".join(parts)).digest()[:16]


def id_base(scope: str) -> str:
    """What ids of events without one begin with: the same for each repetition."""
    return "ik-" + hashlib.sha256(scope.encode()).hexdigest()[:32]


def _pack(body: bytes) -> tuple[bytes, bool]:
    """A body as it is kept, and whether it is packed."""
    if len(body) <= _PACKED_FROM_BYTES:
        return body, False
    packed = zlib.compress(body, 1)
    if len(packed) <= _BODY_BYTES_MAX:
        return packed, True
    members = msgspec.json.decode(body)
    members.pop("results", None)
    return msgspec.json.encode(members), False
