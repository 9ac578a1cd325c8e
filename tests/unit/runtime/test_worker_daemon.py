"""The process from which Spark's workers are copied: preloaded, with few old batches, and quiet."""

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own, as a daemon is one; Spark's loop is replaced by a report of its state.
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
_OWN_DAEMON = """
from shared.runtime.spark.worker_daemon import run_daemon
run_daemon(service="test")
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


@pytest.mark.parametrize("has_unread", [False, True])
def test_a_worker_that_spark_lets_go_of_says_nothing(tmp_path: Path, *, has_unread: bool) -> None:
    """This happens when a session stops, and its workers see it before their daemon does."""
    environ = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
        "SPARK_REUSE_WORKER": "1",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-c", _OWN_DAEMON], env=environ, stdin=-1, stdout=-1, stderr=-1
    )
    assert daemon.stdout is not None
    address = daemon.stdout.read(int.from_bytes(daemon.stdout.read(4)))
    with socket.socket(socket.AF_UNIX) as spark:
        spark.connect(address)
        # The worker's first message is its process id.
        pid = spark.recv(4, socket.MSG_PEEK if has_unread else 0)
        worker = os.pidfd_open(int.from_bytes(pid))
    try:
        assert select.select([worker], [], [], 30)[0], "the worker has not ended"
    finally:
        os.close(worker)
        _, err = daemon.communicate(timeout=30)
    assert err == b""
