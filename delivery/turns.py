"""Decides the moments at which those go on that need not hurry: one after the other on a machine.

They are processes that share a file. Each books the next moment that is free; one that would have
to wait too long for it takes any moment in that time.
"""

import fcntl
import os
import random
import struct
import time
from pathlib import Path

# When the next one may go on, by time.monotonic, which is the same for all processes of a machine.
_FREE_FROM = struct.Struct("<d")
# Not a generator with a state, which processes that are copies of one would all have the same.
_DICE = random.SystemRandom()


def book_turn(file: Path, *, apart_s: float, longest_s: float) -> float:
    """A moment (time.monotonic) `apart_s` after others', and at most `longest_s` from now."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        now_s = time.monotonic()
        kept = os.pread(descriptor, _FREE_FROM.size, 0)
        free_s: float = _FREE_FROM.unpack(kept)[0] if len(kept) == _FREE_FROM.size else 0.0
        if free_s > now_s + longest_s + apart_s:
            # Nobody books so far ahead: the file is older than the machine's last start.
            free_s = 0.0
        mine_s = max(now_s, free_s)
        if mine_s > now_s + longest_s:
            return now_s + _DICE.uniform(0.0, longest_s)
        os.pwrite(descriptor, _FREE_FROM.pack(mine_s + apart_s), 0)
        return mine_s
    finally:
        os.close(descriptor)
