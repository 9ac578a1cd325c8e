"""Starts Spark's Python workers as copies of one process that has loaded delivery already.

A worker that had to import everything by itself needs a second of processor time, which the first
event after a start, a pause or a crash would wait for; a copy needs 20 ms and shares its memory.
"""

import gc
import sys
from importlib import import_module


def main() -> None:
    """Load what tasks need, then wait for Spark to ask for workers."""
    # Spark puts itself on the path as archives, beside the package that is installed. A new worker
    # has Python forget what it knows of its paths, and reading the archives' lists anew takes it
    # 95 ms of processor time.
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for path in [path for path in sys.path_importer_cache if path.endswith(".zip")]:
        del sys.path_importer_cache[path]
    daemon = import_module("pyspark.daemon")
    # What a worker needs at its first task: Spark's side of it, and ours.
    import_module("pyspark.worker")
    import_module("delivery.spark.realtime_source")
    # Forgetting paths needs it.
    import_module("importlib.metadata")
    # Nothing of this is garbage; a collection in each copy would only copy the pages.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
