"""Decides the one hash that stands for a set of ids: the root of a Merkle tree over them, sorted.

The tree and its hashes are those of RFC 9162, section 2.1.1, so anybody can compute the root with
tools of their own. Two sets have the same root only if they are the same set.
"""

import hashlib
from collections.abc import Iterable

_LEAF, _NODE = b"\x00", b"\x01"


def merkle_root(ids: Iterable[str]) -> bytes:
    """The root over the distinct ids, in the order of their UTF-8 bytes."""
    sha256 = hashlib.sha256
    level = [sha256(_LEAF + one).digest() for one in sorted({one.encode() for one in ids})]
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
