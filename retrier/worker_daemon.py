"""Starts Spark's Python workers as copies of one process that has loaded the retrier already.

A worker that had to import everything by itself needs a second of processor time, for which the
first events that fall due after a pause would wait; a copy needs 20 ms and shares its memory.
"""

import gc

from pyspark import worker
from pyspark.daemon import manager

from retrier import due_gate, task

# What a worker needs at its first task: Spark's side of it, and ours.
PRELOADED = (worker, task, due_gate)

if __name__ == "__main__":
    # Nothing of this is garbage; a collection in each copy would only copy the pages.
    gc.freeze()
    manager()
