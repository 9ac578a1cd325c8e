"""A real standalone Spark cluster: a master and workers, as processes of their own."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from deploy.local.children import Child
from deploy.local.ports import pick_free
from tests.integration.deploy.test_probes import jvms_of
from tests.support.deploy.stack_fixtures import fetch, wait_until

SPARK_HOME = Path(pyspark.__file__).parent
TASK_PLACES = 12
_HERE = "--host", "127.0.0.1"
# Without these settings executors get no secrets.
_LOCK = """
spark.authenticate            true
spark.authenticate.secret     a secret of all daemons and drivers
spark.network.crypto.enabled  true
"""


@dataclass
class Standalone:
    """A cluster, each of whose workers has the places of one executor."""

    folder: Path
    page: str
    address: str
    task_places: int = TASK_PLACES
    workers: list[Child] = field(default_factory=list)

    @property
    def conf(self) -> Path:
        """Return the folder that drivers get as SPARK_CONF_DIR."""
        return self.folder / "conf"

    def start_worker(self) -> Child:
        name = f"worker{len(self.workers)}"
        place = ("--work-dir", f"{self.folder / name}", "--webui-port", "0")
        size = ("--cores", f"{self.task_places}", "--memory", "6g")
        log = self.folder / f"{name}.log"
        worker = started("worker", log, self.conf, *size, *place, self.address)
        self.workers.append(worker)
        return worker

    def wait_for_workers(self, count: int) -> None:
        def alive() -> int:
            return int(json.loads(fetch(f"{self.page}/json/") or "{}").get("aliveworkers", 0))

        wait_until(lambda: alive() == count, what=f"there are {count} workers")

    def executors(self, worker: Child) -> list[int]:
        """Return the executors that a worker runs."""
        return [pid for pid in jvms_of(worker.pid) if pid != worker.pid]

    def busy(self) -> list[Child]:
        """Return the workers that run an executor."""
        return [each for each in self.workers if each.alive and self.executors(each)]

    def work(self, worker: Child) -> Path:
        """Return the folder to which a worker's executors write."""
        return self.folder / f"worker{self.workers.index(worker)}"


@contextmanager
def standalone(
    folder: Path, *, workers: int = 1, task_places: int = TASK_PLACES
) -> Iterator[Standalone]:
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text(_LOCK)
    port, page = pick_free(2)
    ports = ("--port", f"{port}", "--webui-port", f"{page}")
    master = started("master", folder / "master.log", conf, *ports)
    spark = Standalone(folder, f"http://127.0.0.1:{page}", f"spark://127.0.0.1:{port}", task_places)
    try:
        wait_until(lambda: bool(fetch(f"{spark.page}/json/")), what="there is a master")
        for _ in range(workers):
            spark.start_worker()
        spark.wait_for_workers(workers)
        yield spark
    finally:
        for daemon in (*spark.workers, master):
            daemon.kill()


def started(name: str, log: Path, conf: Path, *arguments: str) -> Child:
    """Run one of Spark's own daemons, started as in Spark's documentation."""
    what = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
    environ = {
        # A worker has none of the driver's variables in its environment.
        **{each: value for each, value in os.environ.items() if not each.startswith("HIFI_")},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    spark_class = SPARK_HOME / "bin" / "spark-class"
    return Child(name, [spark_class, what, *_HERE, *arguments], log=log, env=environ)
