"""Fetches Spark's jars and makes its class archive while an image is built.

A container then starts without a network for Maven, on a read-only file system, and as quickly as
a process that has run before.
"""

import os
import sys
from pathlib import Path

from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.jars import ensure_jars
from shared.runtime.spark.session import SparkSettings, running_spark


def main(scratch: Path) -> None:
    """Fill the cache; `scratch` is deleted afterwards."""
    cache = default_cache()
    jars = [*ensure_jars("spark", cache=cache), *ensure_jars("msk", cache=cache)]
    # A layer keeps whole seconds of a file's time, which is a part of the archive's name.
    for jar in jars:
        os.utime(jar, (int(jar.stat().st_mtime),) * 2)
    settings = SparkSettings("warm", "delivery.lanes.worker_daemon", scratch, heap_mb=512)
    with running_spark(settings) as spark:
        spark.range(1).count()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
