"""A completeness statement about a stream's minute, byte for byte as it is signed.

Statements of a stream form a chain: each has the hash of the one before it. If one is removed or
changed later, every later one shows it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

# The hash of the previous statement in the first one of a stream.
NO_PREVIOUS = "0" * 64


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcomes of the minute's events at one destination, or in one pipeline.

    `delivered + waiting + dead + lost = due`.
    """

    delivered: int
    waiting: int
    dead: int
    # The lost events, by the stage that lost them.
    lost: Mapping[str, int]
    # For a pipeline: delivered events that it did not pass on, by outcome (filtered, and so on).
    not_passed: Mapping[str, int] = {}
    # How many of the minute's events it should have: all except those from before it began. Old
    # statements do not have this.
    due: int | None = None


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts that we vouch for about the events of one minute of one stream."""

    stream: str
    # The start of the minute by the events' own time; -1 for events with implausible times.
    minute_ms: int
    # 1 at first, and higher after late events or later deliveries changed the books.
    revision: int
    # The number of events that the gateway acknowledged.
    acked: int
    # Distinct ids among all of its events, and the Merkle root over these (RFC 9162, sorted UTF-8),
    # in hex.
    id_count: int
    root: str
    destinations: Mapping[str, Counts]
    issued_at_ms: int
    # SHA-256 of the stream's previous statement, in hex.
    previous: str
    # Events that pipelines wrote to the stream, besides those acknowledged.
    derived: int = 0
    # How many of its events (all, or a sample) were looked up in the log by their offsets, to
    # compare their ids. Old statements do not have this.
    compared: int | None = None

    @property
    def event_count(self) -> int:
        return self.acked + self.derived

    def to_bytes(self) -> bytes:
        """The signed bytes: JSON with sorted names and no spaces."""
        return msgspec.json.encode(self, order="sorted")

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement with its ed25519 signature, as it is published."""

    statement: Statement
    # The public key, raw, in hex; verifiers compare it with the one they trust.
    public_key: str
    signature: bytes

    def to_json(self) -> bytes:
        """Return JSON, with the signature in base64."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_json(cls, value: bytes) -> "SignedStatement":
        return msgspec.json.decode(value, type=cls)
