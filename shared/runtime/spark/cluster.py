"""Configures a session to run its tasks on a Spark cluster, and equips the executors.

Executors have Hifi's packages installed, like every machine of a fleet. A driver gives them the
settings that differ by process: the interpreter, the secrets, and the access to Kafka with its
files.
"""

import re
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from threading import Timer
from typing import Annotated, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pyspark import SparkConf, SparkContext

from shared.runtime.setup_error import SetupError

# An executor is a JVM, and its machine may have to fetch an image first.
_EXECUTOR_WITHIN_S = 120.0
# Each lock, and the options that provide it.
_LOCKS: Mapping[str, tuple[str, ...]] = {
    "spark.authenticate": ("spark.authenticate",),
    "spark.network.crypto.enabled": ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled"),
}
_SECRETS = ("HIFI_SECRET_KEYS", "HIFI_KAFKA_PASSWORD")
_MASTER = re.compile(r"local|yarn|k8s://.+|spark://[^:/,]+:\d+(,[^:/,]+:\d+)*")


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A cluster's settings for a driver."""

    master: str
    # The driver's address for executors.
    driver_host: str
    # The interpreter with Hifi's packages on the executors' machines.
    python: str
    # Environment variables for the executors' Python, with secrets; and variables with files.
    told: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, Path] = field(default_factory=dict)
    # Variables for the executors' Java half, which reads from Kafka in some sessions.
    told_java: Mapping[str, str] = field(default_factory=dict, repr=False)
    # The maximum number of executors; work begins with the first one.
    executors: int = 1

    def options(self, *, task_places: int) -> Mapping[str, str]:
        """Return Spark's options for executors with this many places each."""
        return {
            "spark.master": self.master,
            "spark.driver.host": self.driver_host,
            "spark.dynamicAllocation.enabled": "false",
            "spark.executor.instances": str(self.executors),
            "spark.executor.cores": str(task_places),
            "spark.cores.max": str(task_places * self.executors),
            # An executor on a lost machine is given up after this long: within the promised
            # minute, but later than a lease lasts, so that events that it may still send are
            # labelled.
            "spark.network.timeout": "40s",
            "spark.network.timeoutInterval": "5s",
            # Otherwise YARN would give up after three lost executors in a year.
            "spark.executor.failuresValidityInterval": "10m",
            # Spark hides options with these names when it shows options.
            "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        }

    @property
    def secrets(self) -> Mapping[str, str]:
        """Options that must not be in a command line."""
        return {f"spark.executorEnv.{name}": value for name, value in self.told_java.items()}

    def check_lock(self, conf: SparkConf) -> None:
        """Raise SetupError if any process could claim to be an executor and get secrets."""
        has_secrets = self.files or self.told_java or any(map(self.told.get, _SECRETS))
        missing = [
            name
            for name, ways in _LOCKS.items()
            if not any((conf.get(way) or "").lower() == "true" for way in ways)
        ]
        if has_secrets and missing:
            raise SetupError(
                f"HIFI_SPARK_MASTER is {self.master}, whose executors get secrets of Hifi, so"
                " anybody who can reach this process could get them: set"
                f" {' and '.join(missing)} to true in spark-defaults.conf, in the folder of"
                " SPARK_CONF_DIR (docs/cluster.md)."
            )

    def equip(self, context: SparkContext, folder: Path) -> None:
        """Give executors settings and files; raise SetupError if no executor can use them."""
        # The environment is sent with each task, and is in no configuration that Spark shows.
        context.environment.update(self.told)
        for name, path in self.files.items():
            # The file has the same name in the executor's folder.
            copy = folder / f"{name.lower()}.pem"
            shutil.copy(path, copy)
            context.addFile(str(copy))
            context.environment[name] = copy.name
        theirs = self._first_word(context)
        if theirs != (ours := version("hifi-streams")):
            raise SetupError(
                f"Executors of {self.master} have Hifi {theirs}, but this is {ours}: install the"
                " same version there, or set HIFI_SPARK_PYTHON to an interpreter that has it."
            )

    def _first_word(self, context: SparkContext) -> str:
        giving_up = Timer(_EXECUTOR_WITHIN_S, _cancel, [context])
        giving_up.start()
        try:
            (installed,) = context.parallelize([0], 1).mapPartitions(_installed).collect()
        except Py4JError as error:
            raise SetupError(
                f"No executor of {self.master} has run Hifi's Python ({self.python}) within"
                f" {_EXECUTOR_WITHIN_S:.0f} s: it needs a worker with as many free cores as there"
                f" are places, which has Hifi installed and can reach {self.driver_host}"
                " (docs/fleet.md). Spark's own messages are above."
            ) from error
        finally:
            giving_up.cancel()
        return installed


def address_towards(master: str) -> str:
    """Return this machine's address in its network towards a standalone cluster's master."""
    host, _, port = master.removeprefix("spark://").split(",")[0].rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as towards:
            # Nothing is sent: the kernel only chooses the route.
            towards.connect(address)
            own: str = towards.getsockname()[0]
            return own
    except OSError as error:
        raise SetupError(
            f"HIFI_SPARK_MASTER is {master}, which cannot be reached from here ({error}):"
            " correct it, or set HIFI_SPARK_DRIVER_HOST."
        ) from error


def _checked_master(master: str) -> str:
    """Return Spark's name of a cluster, or `local`; raise ValueError if it is neither."""
    if not _MASTER.fullmatch(master):
        raise ValueError("it must be local, spark://HOST:PORT, k8s://https://HOST:PORT or yarn")
    return master


class SparkClusterSettings(BaseSettings):
    """HIFI_SPARK_*, for every process that may run its tasks on a cluster."""

    model_config = SettingsConfigDict(frozen=True)

    # The Spark that runs the tasks: `local`, or a cluster.
    spark_master: Annotated[str, AfterValidator(_checked_master)] = Field(
        default="local", validation_alias="HIFI_SPARK_MASTER"
    )
    # This process's address for executors; if empty, the address towards the master.
    spark_driver_host: str = Field(default="", validation_alias="HIFI_SPARK_DRIVER_HOST")
    # The interpreter with Hifi's packages on the executors' machines.
    spark_python: str = Field(default=sys.executable, validation_alias="HIFI_SPARK_PYTHON")

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        if self.spark_master.startswith(("k8s:", "yarn")) and not self.spark_driver_host:
            raise SetupError(
                f"HIFI_SPARK_MASTER is {self.spark_master}, whose executors must reach this"
                " process: set its address in HIFI_SPARK_DRIVER_HOST."
            )
        return self

    @property
    def cluster(self) -> SparkCluster | None:
        """The cluster that runs the tasks, or None for this machine; a subclass adds secrets."""
        if self.spark_master == "local":
            return None
        host = self.spark_driver_host or address_towards(self.spark_master)
        return SparkCluster(self.spark_master, host, self.spark_python)


def _installed(_: Iterable[object]) -> Iterator[str]:
    yield version("hifi-streams")


def _cancel(context: SparkContext) -> None:
    with suppress(Py4JError):
        context.cancelAllJobs()
