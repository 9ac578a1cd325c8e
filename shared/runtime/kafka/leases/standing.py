"""Remembers a process's Kafka membership in its folder, for the folder's next owner."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec

from shared.runtime.files.whole_file import write_whole
from shared.runtime.kafka.leases.member import LeaseMember, Standing

# If a process dies sooner after it joined, the others wait for its session to end.
_LOOK_S = 0.5


def kept_standing(path: Path) -> Standing | None:
    """Read a kept standing; None if there is none, or if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Standing)
    except (OSError, msgspec.DecodeError):
        return None


async def keep_standing(path: Path, member: LeaseMember) -> None:
    """Write the standing down whenever it changes, until cancelled."""
    kept: Standing | None = None
    while True:
        if member.standing != kept and member.is_told:
            kept = member.standing
            # Without it the next process waits for the session to end.
            with suppress(OSError):
                await asyncio.to_thread(write_whole, path, msgspec.json.encode(kept))
        await asyncio.sleep(_LOOK_S)
