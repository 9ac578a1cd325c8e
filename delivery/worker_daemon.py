"""Starts Spark's Python workers as copies of one process that has loaded delivery already.

A worker that had to import everything by itself needs a second of processor time, which the first
event after a start, a pause or a crash would wait for; a copy needs 20 ms and shares its memory.
"""

import gc

from pyspark import worker
from pyspark.daemon import manager

from delivery import as_it_comes, task

# What a worker needs at its first task: Spark's side of it, and ours.
PRELOADED = (worker, task, as_it_comes)

if __name__ == "__main__":
    # Nothing of this is garbage; a collection in each copy would only copy the pages.
    gc.freeze()
    manager()
