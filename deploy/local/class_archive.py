"""Decides where the JVM's class archive of the broker lives, and when a new one is made.

With the archive (class data sharing) a broker is up in 1.2 s instead of 2.6 s and takes 50 MB
less memory, measured with Java 17 on 2 cores. A JVM to which an archive does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shared.runtime.java import Java


class ClassArchive:
    """The archive for one Java and one list of jars, made by a broker when it stops in order."""

    def __init__(self, *, cache: Path, java: Java, jars: Sequence[Path], draft: Path) -> None:
        facts = [str(java.path), java.version]
        for jar in jars:
            # The JVM compares these too, and would refuse the archive for any other jar.
            stat = jar.stat()
            facts.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
        digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
        self._path = cache / "classes" / f"broker-{digest}.jsa"
        self._draft = draft

    def options(self, *, may_make: bool) -> list[str]:
        """JVM options: use the archive, or make one at the end of this run, or neither."""
        # A draft that is still here was left by a broker that was killed.
        self._draft.unlink(missing_ok=True)
        quiet = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if self._path.is_file():
            return [f"-XX:SharedArchiveFile={self._path}", *quiet]
        if may_make:
            return [f"-XX:ArchiveClassesAtExit={self._draft}", *quiet]
        return []

    def publish(self) -> None:
        """Put a finished draft into the cache, and drop the ones made for older jars."""
        if not self._draft.is_file():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Data folder and cache may be on two file systems; only a rename within one is atomic.
        copy = self._path.with_name(f"{self._path.name}.{self._draft.stat().st_ino}")
        shutil.move(self._draft, copy)
        for old in self._path.parent.glob("broker-*.jsa"):
            old.unlink(missing_ok=True)
        copy.replace(self._path)
