"""What a Spark worker is a copy of: loaded, and keeping little of the batches it has had."""

import json
import subprocess
import sys

# In a process of its own, as a daemon is one; Spark's loop is replaced by what it would find.
_DAEMON = """
import gc, json, pyspark.daemon, sys

def manager():
    import pyarrow
    print(json.dumps({
        "pool": pyarrow.default_memory_pool().backend_name,
        "has_loaded": "colorsys" in sys.modules,
        "frozen": gc.get_freeze_count() > 1_000,
        "archives": [path for path in sys.path if path.endswith(".zip")],
    }))

pyspark.daemon.manager = manager
sys.path.append("/nowhere/pyspark.zip")
from shared.runtime.spark.worker_daemon import run_daemon
run_daemon("colorsys", service="test")
"""


def test_workers_share_what_is_loaded_and_give_back_what_a_batch_took() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _DAEMON], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "pool": "system",
        "has_loaded": True,
        "frozen": True,
        "archives": [],
    }
