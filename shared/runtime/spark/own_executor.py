"""Runs a session's tasks in an executor of its own, beside the driver on this machine.

The driver outlives whatever a tenant's expression does to the executor's memory: Spark starts
another. It is Spark's own standalone cluster, whose master and worker live in the driver's JVM, as
in its `local-cluster`; that one keeps its files beside Spark's jars, where not everybody may write.
"""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HERE = "127.0.0.1"
# The worker offers this much more than the heap, so that the master always finds it large enough.
_MORE_MB = 1_024


def own_cluster(gateway: Any, *, folder: Path, slots: int, heap_mb: int) -> dict[str, str]:
    """Start a cluster for one executor, which ends with this JVM; return its session's options.

    A process that claims to be an executor has to prove it.
    """
    work = folder / "executors"
    # The logs of earlier executors; nobody else uses this folder.
    shutil.rmtree(work, ignore_errors=True)
    secret = {
        "spark.authenticate": "true",
        # Not in the command line of the driver, nor in that of the executor.
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
        _HERE, 0, 0, slots, heap_mb + _MORE_MB, urls, str(work.absolute()), none, conf, none
    )
    return {
        "spark.master": url,
        "spark.executor.cores": str(slots),
        **_SESSION,
        **secret,
    }


def executors_of(context: Any) -> frozenset[str]:
    """The executors that a session has now; none if its tasks run in the driver."""
    there = context._jsc.sc().getExecutorIds()  # noqa: SLF001 - Python's context has no words for it
    return frozenset(map(there.apply, range(there.size())))


_CLUSTER: Mapping[str, str] = {
    "spark.master.rest.enabled": "false",
    # Their pages cannot be left out.
    "spark.ui.killEnabled": "false",
    # Both are one process, which may stand still as a whole.
    "spark.worker.timeout": "86400",
    # However often one ends, another replaces it.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(1024 * 1024),
    "spark.executor.logs.rolling.maxRetainedFiles": "2",
}
_SESSION: Mapping[str, str] = {
    # A task that is still running this long after it was cut off ends its executor, whatever else
    # runs there: by then it has been replaced in order, unless others did not come to their end.
    "spark.task.reaper.killTimeout": "300s",
    # The planner of the jobs finds out which of them has ended an executor.
    "spark.task.maxFailures": "1",
}
