"""Writes jars.lock from our coordinates: `python -m shared.runtime.java.jars_lock`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.runtime.java.ivy import fetched_jars, file_name
from shared.runtime.java.jars import LOCK_PATH, LockedJar, sha256_of

# The jars that we choose; all others in the lock file are their dependencies.
_BROKER = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    # The broker's own jars do not bind slf4j to log4j2; without this one the broker logs nothing.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
# These are fetched without dependencies, because pyspark 4.2.0 has all of them.
_SPARK = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # The newest in the registry; tests show that it works with 4.2.0.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    # Older clients can write a record to a wrong topic (KAFKA-19012).
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
# With everything that it needs inside: the AWS SDK has 30 jars, some of them in other versions in
# pyspark.
_MSK = ("software.amazon.msk:aws-msk-iam-auth:2.3.5:all",)
_HEADER = """\
# Every jar that is loaded besides pyspark's own, with the bytes it must have.
# Made by `python -m shared.runtime.java.jars_lock`; change the coordinates there, never here.
"""


def main() -> int:
    ivy_settings = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    broker = _resolve(_BROKER, transitive=True, ivy_settings=ivy_settings)
    spark = _resolve(_SPARK, transitive=False, ivy_settings=ivy_settings)
    msk = _resolve(_MSK, transitive=False, ivy_settings=ivy_settings)
    LOCK_PATH.write_text(lock_text({"broker": broker, "spark": spark, "msk": msk}))
    counts = f"{len(broker)} broker jars, {len(spark)} Spark jars, {len(msk)} jar for MSK"
    sys.stdout.write(f"{LOCK_PATH}: {counts}\n")
    return 0


def lock_text(sets: Mapping[str, Sequence[LockedJar]]) -> str:
    """Return the lock file's text, sorted, so that the same jars always give the same bytes."""
    rows = [
        f'\n[[{name}]]\ncoordinate = "{jar.coordinate}"\n'
        f'sha256 = "{jar.sha256}"\nsize_bytes = {jar.size_bytes}\n'
        for name, jars in sorted(sets.items())
        for jar in sorted(jars, key=lambda jar: jar.coordinate.split(":"))
    ]
    return _HEADER + "".join(rows)


def _resolve(
    wanted: Sequence[str], *, transitive: bool, ivy_settings: Path | None
) -> list[LockedJar]:
    with fetched_jars(
        wanted,
        settings=ivy_settings,
        transitive=transitive,
        on_line=lambda line: sys.stderr.write(f"{line}\n"),
    ) as paths:
        jars = [_locked(path) for path in paths]
    names = [jar.file_name for jar in jars]
    assert len(set(names)) == len(names), "two jars would have the same file name"
    return jars


def _locked(path: Path) -> LockedJar:
    module = ":".join(path.parts[-4:-1])
    classifier = path.stem.removeprefix(Path(file_name(module)).stem).replace("-", ":", 1)
    jar = LockedJar(f"{module}{classifier}", sha256_of(path), path.stat().st_size)
    assert jar.file_name == path.name, f"{path} is not named after its coordinate"
    return jar


if __name__ == "__main__":
    raise SystemExit(main())
