"""Steps the wall clock of Python processes of a chaos run by the figures in two files.

One file is for all processes, the other for one service with its workers. The machine's own clock
is shared by all; Kafka's and Spark's Java halves keep it.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

_FILE = os.environ.get("CHAOS_CLOCK_FILE")
# The service that this process belongs to; Spark's workers inherit it.
_SERVICE = "CHAOS_CLOCK_SERVICE"

if _FILE:
    if "-m" in sys.orig_argv:
        os.environ.setdefault(_SERVICE, sys.orig_argv[sys.orig_argv.index("-m") + 1])
    _STEPS_NS = []
    for _path in (Path(_FILE), Path(f"{_FILE}-{os.environ.get(_SERVICE, '')}")):
        if _path.exists():
            with _path.open("rb") as file:
                _STEPS_NS.append(mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ))
    _true_time_ns = time.time_ns

    def _time_ns() -> int:
        steps_ns: list[int] = [struct.unpack("<q", step)[0] for step in _STEPS_NS]
        return _true_time_ns() + sum(steps_ns)

    time.time_ns = _time_ns
    time.time = lambda: _time_ns() / 1e9
