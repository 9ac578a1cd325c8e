"""Keeps a follower of the tables running on this machine, as long as there are tables.

Each process that reads copies has a keeper. The follower is a separate process, so that changes in
tables never delay answers or work on events; a lock allows only one follower. If the process that
started it ends, another one starts the next follower within 1 s, which continues at its position.
"""

import asyncio
import fcntl
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from shared.runtime.tables.folders import LOCK

log = structlog.get_logger()

_LOOK_S = 1.0
# If a follower ends at once, the cause probably lasts for a while.
_AGAIN_S_MAX = 10.0
_END_WITHIN_S = 5.0


async def keep_followed(
    folder: Path, bootstrap_servers: str, is_needed: Callable[[], bool]
) -> None:
    """Start a follower whenever one is needed and none runs, until cancelled."""
    pause_s = _LOOK_S
    while True:
        if not is_needed() or is_followed(folder):
            await asyncio.sleep(_LOOK_S)
            continue
        try:
            code = await _followed(folder, bootstrap_servers)
        except OSError as error:
            # Without copies there are no answers about tables, but everything else works.
            log.warning("tables.not_followed", folder=str(folder), error=str(error))
            code = 1
        # 0 means that another follower has started meanwhile.
        pause_s = _LOOK_S if code == 0 else min(2 * pause_s, _AGAIN_S_MAX)
        await asyncio.sleep(pause_s)


def command(folder: Path, bootstrap_servers: str, whose: int) -> list[str]:
    """Return the command of a follower, which runs until process `whose` ends."""
    module = "shared.runtime.tables.follower"
    return [sys.executable, "-m", module, str(folder.absolute()), bootstrap_servers, str(whose)]


def is_followed(folder: Path) -> bool:
    """Return whether a follower holds the lock."""
    try:
        with (folder / LOCK / "owner.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def lock_folder(folder: Path) -> None:
    """Create the folder of the lock."""
    (folder / LOCK).mkdir(parents=True, exist_ok=True)


async def _followed(folder: Path, bootstrap_servers: str) -> int:
    lock_folder(folder)
    process = await asyncio.create_subprocess_exec(
        *command(folder, bootstrap_servers, os.getpid()), stdin=asyncio.subprocess.DEVNULL
    )
    log.info("tables.followed", process=process.pid)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END_WITHIN_S)
