"""Stores a process's Kafka membership in its folder, for the folder's next owner."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec

from shared.runtime.files.whole_file import write_whole
from shared.runtime.kafka.leases.member import LeaseMember, Standing

# If a process dies sooner than this after joining, the others wait for the end of its session.
_LOOK_S = 0.5


def kept_standing(path: Path) -> Standing | None:
    """Read a stored standing; return None if there is none, or if it is unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Standing)
    except (OSError, msgspec.DecodeError):
        return None


async def keep_standing(path: Path, member: LeaseMember) -> None:
    """Store the standing whenever it changes, until cancelled."""
    kept: Standing | None = None
    while True:
        if member.standing != kept and member.is_told:
            kept = member.standing
            # Without the file, the next process waits for the end of the session.
            with suppress(OSError):
                await asyncio.to_thread(write_whole, path, msgspec.json.encode(kept))
        await asyncio.sleep(_LOOK_S)
