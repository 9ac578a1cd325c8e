"""Makes jars.lock from our coordinates: `python -m shared.runtime.java.jars_lock`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from shared.runtime.java.ivy import Coordinate, run_ivy
from shared.runtime.java.jars import LOCK_PATH, JarSet, LockedJar, sha256_of
from shared.runtime.java.java import find_java

if TYPE_CHECKING:
    from collections.abc import Sequence

# What we choose; everything else in the lock follows from it.
_BROKER = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    # The broker's own jars have no binding of slf4j to log4j2: without one it logs nothing.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
# These alone and not what they ask for: all the rest is already inside pyspark 4.2.0.
_SPARK = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # The newest that the registry can give; measured to work with 4.2.0.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    # Older clients can put a record on the wrong topic (KAFKA-19012).
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
_HEADER = """\
# Every jar that is loaded besides pyspark's own, with the bytes it must have.
# Made by `python -m shared.runtime.java.jars_lock`; change the coordinates there, never here.
"""


def main() -> int:
    ivy_settings = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    broker = _resolve(_BROKER, transitive=True, ivy_settings=ivy_settings)
    spark = _resolve(_SPARK, transitive=False, ivy_settings=ivy_settings)
    LOCK_PATH.write_text(lock_text({"broker": broker, "spark": spark}))
    sys.stdout.write(f"{LOCK_PATH}: {len(broker)} broker jars, {len(spark)} Spark jars\n")
    return 0


def lock_text(sets: dict[JarSet, list[LockedJar]]) -> str:
    """The lock file: sorted, so that the same choice always gives the same bytes."""
    rows = [
        f'\n[[{name}]]\ncoordinate = "{jar.coordinate}"\n'
        f'sha256 = "{jar.sha256}"\nsize_bytes = {jar.size_bytes}\n'
        for name, jars in sorted(sets.items())
        for jar in sorted(jars, key=lambda jar: jar.coordinate)
    ]
    return _HEADER + "".join(rows)


def _resolve(
    wanted: Sequence[str], *, transitive: bool, ivy_settings: Path | None
) -> list[LockedJar]:
    with tempfile.TemporaryDirectory(prefix="hifi-lock-") as temporary:
        out = Path(temporary) / "out"
        run_ivy(
            [Coordinate.parse(text) for text in wanted],
            pattern=f"{out}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]",
            work=Path(temporary) / "ivy",
            java=find_java(),
            settings=ivy_settings,
            transitive=transitive,
            on_line=_say,
        )
        jars = [_locked(path) for path in sorted(out.glob("*/*/*/*.jar"))]
    names = [jar.coordinate.file_name for jar in jars]
    assert len(set(names)) == len(names), "two jars would have the same file name"
    return jars


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _locked(path: Path) -> LockedJar:
    group, artifact, version = path.parts[-4:-1]
    coordinate = Coordinate(group, artifact, version)
    assert coordinate.file_name == path.name, f"{path} is not named after its coordinate"
    return LockedJar(coordinate, sha256_of(path), path.stat().st_size)


if __name__ == "__main__":
    raise SystemExit(main())
