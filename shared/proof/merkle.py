"""Computes one hash for a set of ids: the root of a Merkle tree over them, sorted.

A leaf is a block of 64 ids in the order of their code points (which is that of their UTF-8), one a
line; a hash for every id would cost ten times as much. The tree over the leaves and all hashes are
those of RFC 9162, section 2.1.1. Two sets have the same root only if they are equal.
"""

import hashlib
from collections.abc import Iterable, Sequence

_LEAF, _NODE = b"\x00", b"\x01"
# Bulk hashing is at full speed from about a kilobyte on.
BLOCK_IDS = 64


def merkle_root(ids: Iterable[str]) -> bytes:
    """The root over the distinct ids."""
    whole = sorted(set(ids))
    return root_of(_block(whole[at : at + BLOCK_IDS]) for at in range(0, len(whole), BLOCK_IDS))


def root_of(blocks: Iterable[bytes]) -> bytes:
    """The root over leaves that the caller has made."""
    sha256 = hashlib.sha256
    level = [sha256(_LEAF + block).digest() for block in blocks]
    if not level:
        return sha256(b"").digest()
    while len(level) > 1:
        above = [
            sha256(_NODE + left + right).digest()
            for left, right in zip(level[::2], level[1::2], strict=False)
        ]
        if len(level) % 2:
            above.append(level[-1])
        level = above
    return level[0]


def _block(ids: Sequence[str]) -> bytes:
    r"""A line for each id; \ is written \\, and a line break within an id \n."""
    lines = [event_id.replace("\\", "\\\\").replace("\n", "\\n") for event_id in ids]
    # JSON or a header cannot have half a surrogate pair, but it must not stop the audit.
    return "\n".join(lines).encode(errors="surrogatepass")
