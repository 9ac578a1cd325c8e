"""Finds the jars of the lock, and refuses any whose bytes differ from it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from shared.runtime.java.ivy import Coordinate, fetched, run_ivy
from shared.runtime.java.java import find_java
from shared.runtime.setup_error import SetupError

JarSet: TypeAlias = Literal["broker", "spark"]
LOCK_PATH = Path(__file__).with_name("jars.lock")
# Hashing 44 MB takes 42 ms with 4 threads and 95 ms with one (2 cores; hashlib drops the GIL).
_HASH_THREADS = 4


@dataclass(frozen=True, slots=True)
class LockedJar:
    coordinate: Coordinate
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JarProgress:
    """Jar `done` of `total` has come; `size_bytes` are of all that has come so far."""

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
    on_progress: OnProgress | None = None,
    ivy_settings: Path | None = None,
) -> list[Path]:
    """The jars of one set, in lock order; each is checked now, and fetched if it is missing."""
    locked = read_lock(LOCK_PATH.read_text())[jar_set]
    folder = cache / "jars" / jar_set
    if missing_jars(locked, folder=folder):
        with _only_one(cache):
            # Another process may have fetched them while this one waited for its turn.
            missing = missing_jars(locked, folder=folder)
            if missing:
                report = _report(jar_set, missing, on_progress)
                _fetch(missing, folder=folder, ivy_settings=ivy_settings, report=report)
    return [folder / jar.coordinate.file_name for jar in locked]


def default_cache(environ: Mapping[str, str] | None = None) -> Path:
    """$HIFI_CACHE, else hifi under $XDG_CACHE_HOME, else ~/.cache/hifi."""
    environ = os.environ if environ is None else environ
    if environ.get("HIFI_CACHE"):
        return Path(environ["HIFI_CACHE"]).expanduser().absolute()
    home = environ.get("XDG_CACHE_HOME", "")
    # The XDG standard says that a relative path there must be ignored.
    if home and Path(home).is_absolute():
        return Path(home) / "hifi"
    return Path.home() / ".cache" / "hifi"


def read_lock(text: str) -> dict[JarSet, list[LockedJar]]:
    data = tomllib.loads(text)

    def jars(jar_set: JarSet) -> list[LockedJar]:
        return [
            LockedJar(Coordinate.parse(row["coordinate"]), row["sha256"], row["size_bytes"])
            for row in data[jar_set]
        ]

    return {"broker": jars("broker"), "spark": jars("spark")}


def missing_jars(locked: Sequence[LockedJar], *, folder: Path) -> list[LockedJar]:
    """Those not in the folder yet; SetupError for one that is there with other bytes."""
    with ThreadPoolExecutor(_HASH_THREADS) as pool:
        present = pool.map(lambda jar: _is_present(jar, folder), locked)
        return [jar for jar, here in zip(locked, present, strict=True) if not here]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_present(jar: LockedJar, folder: Path) -> bool:
    path = folder / jar.coordinate.file_name
    try:
        actual = sha256_of(path)
    except FileNotFoundError:
        return False
    _check(jar, actual, path, mend=f"`rm {path}` and run again")
    return True


def _check(jar: LockedJar, actual: str, path: Path, *, mend: str) -> None:
    if actual != jar.sha256:
        raise SetupError(
            f"{path} is corrupt: its SHA-256 is {actual[:12]}…, and the lock says "
            f"{jar.sha256[:12]}…; {mend}."
        )


def _report(
    jar_set: JarSet, missing: Sequence[LockedJar], on_progress: OnProgress | None
) -> Callable[[str], None]:
    """Turns Ivy's lines into progress: jar k of the n that are missing."""
    sizes = {jar.coordinate: jar.size_bytes for jar in missing}
    total, size_total = len(sizes), sum(sizes.values())
    done = 0

    def read_line(line: str) -> None:
        nonlocal done
        coordinate = fetched(line)
        if coordinate not in sizes or on_progress is None:
            return
        del sizes[coordinate]
        done += 1
        size = size_total - sum(sizes.values())
        name = coordinate.file_name
        on_progress(JarProgress(jar_set, name, done, total, size, size_total))

    return read_line


def _fetch(
    missing: Sequence[LockedJar],
    *,
    folder: Path,
    ivy_settings: Path | None,
    report: Callable[[str], None],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    java = find_java()
    # Beside the folder, so that the move into place is a rename within one file system. Ivy's own
    # cache stands inside: it goes with it, so a bad download is never taken for a good one later.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as temporary:
        staging = Path(temporary)
        run_ivy(
            [jar.coordinate for jar in missing],
            pattern=f"{staging}/[artifact]-[revision].[ext]",
            work=staging / "ivy",
            java=java,
            settings=ivy_settings,
            on_line=report,
        )
        for jar in missing:
            path = staging / jar.coordinate.file_name
            if not path.is_file():
                raise SetupError(
                    f"Ivy did not bring {jar.coordinate}: check the Ivy settings, and run again."
                )
            _check(jar, sha256_of(path), path, mend="the registry sent other bytes: tell its owner")
        for jar in missing:
            path = staging / jar.coordinate.file_name
            path.replace(folder / path.name)


@contextlib.contextmanager
def _only_one(cache: Path) -> Iterator[None]:
    """One process at a time fetches; the kernel frees the lock however its holder ends."""
    folder = cache / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "fetch.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for left_over in folder.glob("fetch-*"):
            # Of a process that was killed while it fetched: nobody else is inside now.
            shutil.rmtree(left_over, ignore_errors=True)
        yield
