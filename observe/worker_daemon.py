"""Starts Spark's Python workers as copies of one process that has loaded the audit already.

Spark lets go of a worker that rests for a minute, so each run of the audit would start Python anew:
a worker that had to import everything by itself took 1.3 s of processor time, a copy takes 20 ms.
"""

import gc

from pyspark import worker
from pyspark.daemon import manager

from observe.audit import spark_tasks

# What a worker needs at its first task: Spark's side of it, and ours.
PRELOADED = (worker, spark_tasks)

if __name__ == "__main__":
    # Nothing of this is garbage; a collection in each copy would only copy the pages.
    gc.freeze()
    manager()
