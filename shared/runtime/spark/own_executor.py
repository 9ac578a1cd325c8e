"""Runs a session's tasks in a separate executor, beside the driver on this machine.

The driver survives whatever a tenant's expression does to the executor's memory, and Spark starts
another executor. It is Spark's standalone cluster, with master and worker in the driver's JVM, as
in `local-cluster`. But `local-cluster` keeps its files beside Spark's jars, where not every user
may write.
"""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HERE = "127.0.0.1"
# The worker offers this much more than the heap, so that it is always large enough for the master.
_MORE_MB = 1_024


def own_cluster(gateway: Any, *, folder: Path, task_places: int, heap_mb: int) -> dict[str, str]:
    """Start a cluster for one executor, which ends with this JVM; return its session's options.

    Executors must authenticate themselves.
    """
    work = folder / "executors"
    # Remove the logs of earlier executors; nobody else uses this folder.
    shutil.rmtree(work, ignore_errors=True)
    secret = {
        "spark.authenticate": "true",
        # It is in neither the driver's nor the executor's command line.
        "spark.authenticate.secret": secrets.token_hex(32),
    }
    jvm = gateway.jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in {**_CLUSTER, **secret}.items():
        conf.set(name, value)
    deploy = jvm.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint(_HERE, 0, 0, conf)
    url = f"spark://{_HERE}:{master.productElement(0).address().port()}"
    urls = gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    none = jvm.scala.Option.empty()
    deploy.worker.Worker.startRpcEnvAndEndpoint(
        _HERE, 0, 0, task_places, heap_mb + _MORE_MB, urls, str(work.absolute()), none, conf, none
    )
    return {
        "spark.master": url,
        "spark.executor.cores": str(task_places),
        **_SESSION,
        **secret,
    }


def executors_of(context: Any) -> frozenset[str]:
    """Return a session's current executors; none if its tasks run in the driver."""
    there = context._jsc.sc().getExecutorIds()  # noqa: SLF001 - Python's context lacks it
    return frozenset(map(there.apply, range(there.size())))


_CLUSTER: Mapping[str, str] = {
    "spark.master.rest.enabled": "false",
    # Their pages cannot be turned off.
    "spark.ui.killEnabled": "false",
    # Master and worker are one process, which may freeze as a whole.
    "spark.worker.timeout": "86400",
    # However often an executor ends, another one replaces it.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(1024 * 1024),
    "spark.executor.logs.rolling.maxRetainedFiles": "2",
}
_SESSION: Mapping[str, str] = {
    # A task that still runs this long after it was cut off ends its executor, whatever else runs
    # there. Normally the executor has been replaced earlier, after the end of its other tasks.
    "spark.task.reaper.killTimeout": "300s",
    # The planner of the jobs finds out which one of them killed an executor.
    "spark.task.maxFailures": "1",
}
