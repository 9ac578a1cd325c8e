"""Checks signed statements as the docs describe them, and shares no code with the signer.

A program proves little about its own work. So this module reads a statement, builds the Merkle
tree and adds up the sums by itself.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

# Ids in a leaf of the tree.
_LEAF_IDS = 64


@dataclass(frozen=True, slots=True)
class ProvenLine:
    """The outcome of a minute's events at one destination, or in one pipeline."""

    name: str
    # None if an old statement lacks it.
    due: int | None
    delivered: int
    waiting: int
    dead: int
    lost: Mapping[str, int]
    not_passed: Mapping[str, int]

    def fault(self, event_count: int) -> str:
        """Return why the line cannot be true; empty if it can."""
        sum_of_all = self.delivered + self.waiting + self.dead + sum(self.lost.values())
        if self.due is not None and sum_of_all != self.due:
            return f"{self.name}: its parts sum to {sum_of_all:,} events, but {self.due:,} were due"
        if sum_of_all > event_count:
            return f"{self.name} has {sum_of_all:,} events, but the minute only {event_count:,}"
        if sum(self.not_passed.values()) > self.delivered:
            return f"{self.name} says that it held back more events than it got"
        if min(self.delivered, self.waiting, self.dead, *self.lost.values()) < 0:
            return f"{self.name} has a negative count"
        return ""


@dataclass(frozen=True, slots=True)
class Proof:
    """A statement as it was published, with its key and its signature."""

    said: Mapping[str, Any]
    public_key: str
    signature: bytes

    @classmethod
    def of(cls, published: Mapping[str, Any]) -> "Proof":
        """Read a published statement; ValueError if it is not one."""
        try:
            signature = base64.b64decode(published["signature"], validate=True)
            proof = cls(published["statement"], published["public_key"], signature)
            proof.fault()
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a statement: {error!r}") from error
        return proof

    @classmethod
    def from_json(cls, text: bytes) -> "Proof":
        return cls.of(json.loads(text))

    @property
    def stream(self) -> str:
        return str(self.said["stream"])

    @property
    def minute_ms(self) -> int:
        return int(self.said["minute_ms"])

    @property
    def revision(self) -> int:
        return int(self.said["revision"])

    @property
    def acked(self) -> int:
        return int(self.said["acked"])

    @property
    def derived(self) -> int:
        return int(self.said.get("derived", 0))

    @property
    def compared(self) -> int | None:
        """The number of events looked up in the log; None if an old statement lacks it."""
        count = self.said.get("compared")
        return None if count is None else int(count)

    @property
    def id_count(self) -> int:
        return int(self.said["id_count"])

    @property
    def root(self) -> str:
        return str(self.said["root"])

    @property
    def issued_at_ms(self) -> int:
        return int(self.said["issued_at_ms"])

    @property
    def lines(self) -> list[ProvenLine]:
        return [
            ProvenLine(
                name,
                counts.get("due"),
                counts["delivered"],
                counts["waiting"],
                counts["dead"],
                counts["lost"],
                counts.get("not_passed", {}),
            )
            for name, counts in self.said["destinations"].items()
        ]

    @property
    def signed(self) -> bytes:
        """The signed bytes: JSON with sorted names and no spaces."""
        text = json.dumps(self.said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.signed).hexdigest()

    def is_signed(self, *, public_key: str) -> bool:
        """Return whether the owner of the public key (raw, in hex) signed this statement."""
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
            key.verify(self.signature, self.signed)
        except (InvalidSignature, ValueError):
            return False
        return self.public_key == public_key

    def has_ids(self, ids: AbstractSet[str]) -> bool:
        """Return whether these are exactly the signed ids."""
        return len(ids) == self.id_count and root_of(ids) == self.root

    def fault(self) -> str:
        """Return why its content cannot be true, whoever signed it; empty if it can."""
        count = self.acked + self.derived
        if not self.id_count <= count:
            return f"it has {self.id_count:,} ids, but only {count:,} events"
        if (self.compared or 0) > count:
            return f"{self.compared:,} of {count:,} events were compared"
        return next((fault for line in self.lines if (fault := line.fault(count))), "")


def root_of(ids: Iterable[str]) -> str:
    """Return the Merkle root of RFC 9162, 2.1.1; each leaf is 64 sorted ids, one a line."""
    lines = [each.replace("\\", "\\\\").replace("\n", "\\n") for each in sorted(set(ids))]
    leaves = [
        hashlib.sha256(b"\0" + "\n".join(lines[at : at + _LEAF_IDS]).encode()).digest()
        for at in range(0, len(lines), _LEAF_IDS)
    ]
    return (_tree(leaves) if leaves else hashlib.sha256(b"").digest()).hex()


def _tree(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _tree(leaves[:left]) + _tree(leaves[left:])).digest()


def broken_link(chain: Sequence[Proof]) -> Proof | None:
    """Return the first statement that does not name its predecessor; None if all do."""
    for before, after in pairwise(chain):
        if after.said["previous"] != before.digest:
            return after
    return None
