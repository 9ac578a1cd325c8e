"""Gives a folder one owner at a time: the one process that holds its lock."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from shared.runtime.setup_error import SetupError


@contextlib.contextmanager
def own_folder(folder: Path, *, what: str) -> Iterator[None]:
    """Hold the folder; the kernel releases it however the process ends, even after kill -9."""
    mend = "choose another data folder, or change its permissions"
    with lock_file(folder / "owner.lock", f"The folder {folder} cannot be used", mend) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise SetupError(
                f"The folder {folder} is in use by another {what} (process {owner}):"
                " stop that one first, or choose another folder."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def lock_file(path: Path, wrong: str, mend: str) -> TextIO:
    """Open the file of a lock in a folder that may be new; SetupError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise SetupError(f"{wrong} ({error.strerror}): {mend}.") from error
