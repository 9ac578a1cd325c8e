"""Finds the jars of the lock file, and refuses a jar whose bytes differ from it."""

import contextlib
import fcntl
import hashlib
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from shared.runtime.files.one_owner import lock_file
from shared.runtime.java.ivy import fetched, fetched_jars, file_name, module_of
from shared.runtime.setup_error import SetupError

# The jars of "msk" are only for the login to Amazon MSK.
JarSet: TypeAlias = Literal["broker", "spark", "msk"]
LOCK_PATH = Path(__file__).with_name("jars.lock")
# Hashing 44 MB takes 42 ms with 4 threads and 95 ms with one (2 cores; hashlib drops the GIL).
_HASH_THREADS = 4


@dataclass(frozen=True, slots=True)
class LockedJar:
    coordinate: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        return file_name(self.coordinate)


@dataclass(frozen=True, slots=True)
class JarProgress:
    """Jar `done` of `total` has arrived; `size_bytes` is the size of all jars so far."""

    jar_set: JarSet
    file_name: str
    done: int
    total: int
    size_bytes: int
    size_bytes_total: int


OnProgress: TypeAlias = Callable[[JarProgress], None]


def ensure_jars(
    jar_set: JarSet,
    *,
    cache: Path,
    on_progress: OnProgress = lambda _: None,
    ivy_settings: Path | None = None,
) -> list[Path]:
    """Return the jars of one set, in lock order; check each one, and fetch missing ones."""
    locked = read_lock()[jar_set]
    folder = cache / "jars" / jar_set
    if missing_jars(locked, folder=folder):
        with _only_one(cache):
            # Another process may have fetched them while we waited for the lock.
            if missing := missing_jars(locked, folder=folder):
                report = _report(jar_set, missing, on_progress)
                _fetch(missing, folder, ivy_settings, on_line=report)
    return [folder / jar.file_name for jar in locked]


def read_lock() -> dict[str, list[LockedJar]]:
    """Return the jars of each set."""
    return {
        jar_set: [LockedJar(**row) for row in rows]
        for jar_set, rows in tomllib.loads(LOCK_PATH.read_text()).items()
    }


def missing_jars(locked: Sequence[LockedJar], *, folder: Path) -> list[LockedJar]:
    """Return the jars that are not in the folder; SetupError if one has other bytes."""
    with ThreadPoolExecutor(_HASH_THREADS) as pool:
        present = pool.map(lambda jar: _is_present(jar, folder), locked)
        return [jar for jar, here in zip(locked, present, strict=True) if not here]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_present(jar: LockedJar, folder: Path) -> bool:
    path = folder / jar.file_name
    try:
        actual = sha256_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    _check(jar, actual, path, mend=f"`rm {path}` and run again")
    return True


def _check(jar: LockedJar, actual: str, path: Path, *, mend: str) -> None:
    if actual != jar.sha256:
        raise SetupError(
            f"{path} is corrupt: its SHA-256 is {actual[:12]}…, but the lock file has "
            f"{jar.sha256[:12]}…; {mend}."
        )


def _report(
    jar_set: JarSet, missing: Sequence[LockedJar], on_progress: OnProgress
) -> Callable[[str], None]:
    """Return a function that turns Ivy's lines into progress: jar k of n missing ones."""
    awaited = {module_of(jar.coordinate): jar for jar in missing}
    total, size_total = len(missing), sum(jar.size_bytes for jar in missing)

    def read_line(line: str) -> None:
        jar = awaited.pop(fetched(line) or "", None)
        if jar is not None:
            done = total - len(awaited)
            size = size_total - sum(each.size_bytes for each in awaited.values())
            on_progress(JarProgress(jar_set, jar.file_name, done, total, size, size_total))

    return read_line


def _fetch(
    missing: Sequence[LockedJar],
    folder: Path,
    settings: Path | None,
    on_line: Callable[[str], None],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [jar.coordinate for jar in missing]
    # Fetch beside the folder, so that the move into it is a rename within one file system.
    with fetched_jars(wanted, folder=folder.parent, settings=settings, on_line=on_line) as paths:
        by_name = {path.name: path for path in paths}
        for jar in missing:
            path = by_name.get(jar.file_name)
            if path is None:
                raise SetupError(
                    f"Ivy did not fetch {jar.coordinate}: check the Ivy settings, and run again."
                )
            _check(jar, sha256_of(path), path, mend="the registry sent other bytes: tell its owner")
        for jar in missing:
            by_name[jar.file_name].replace(folder / jar.file_name)


@contextlib.contextmanager
def _only_one(cache: Path) -> Iterator[None]:
    """Let one process fetch at a time; the kernel releases the lock however its holder ends."""
    folder = cache / "jars"
    mend = "set HIFI_CACHE to a folder that this user may write to"
    with lock_file(folder / "fetch.lock", f"Jars cannot be kept in {folder}", mend) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for left_over in folder.glob("fetch-*"):
            # It is from a process that was killed during a fetch, as nobody else holds the lock.
            shutil.rmtree(left_over, ignore_errors=True)
        yield
