"""An executor is judged by the threads of its collectors, however early it was seen first."""

import os
import subprocess
import sys
import time

from shared.runtime.spark.memory_watch import _BUSY_S_MIN, _LOOKS, _Executor

# A process whose threads are called like a JVM's collector only after a moment.
_LATE = """
import ctypes, threading, time
def collect():
    ctypes.CDLL(None).prctl(15, b"VM Thread", 0, 0, 0)
    while True:
        pass
time.sleep(0.5)
threading.Thread(target=collect, daemon=True).start()
time.sleep(30)
"""


def test_collectors_that_start_after_the_first_look_are_found() -> None:
    with subprocess.Popen([sys.executable, "-c", _LATE]) as process:
        try:
            executor, give_up_s = _Executor(process.pid), time.monotonic() + 20
            assert not executor.has_no_memory()
            assert executor.collectors == []
            while not executor.has_no_memory():
                assert time.monotonic() < give_up_s
                time.sleep(_BUSY_S_MIN / _LOOKS + 0.2)
            assert len(executor.collectors) == 1
        finally:
            process.kill()
    assert not _Executor(os.getpid()).has_no_memory()
