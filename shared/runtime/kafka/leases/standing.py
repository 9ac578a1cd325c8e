"""Remembers in a process's folder as whom Kafka knows it, for whoever has the folder next."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec

from shared.runtime.files.whole_file import write_whole
from shared.runtime.kafka.leases.member import LeaseMember, Standing

# A process that dies sooner after it joined is waited for as any other is.
_LOOK_S = 0.5


def kept_standing(path: Path) -> Standing | None:
    """None if nobody had the folder, or what is there cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Standing)
    except (OSError, msgspec.DecodeError):
        return None


async def keep_standing(path: Path, member: LeaseMember) -> None:
    """Write it down whenever it is another one, until cancelled."""
    kept: Standing | None = None
    while True:
        if member.standing != kept and member.is_told:
            kept = member.standing
            # Without it whoever comes next waits for a bit.
            with suppress(OSError):
                await asyncio.to_thread(write_whole, path, msgspec.json.encode(kept))
        await asyncio.sleep(_LOOK_S)
