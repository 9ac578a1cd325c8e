"""Says how a session's tasks run on a Spark cluster, and gives its executors what they need.

They have Hifi's packages installed, as every machine of a fleet. A driver gives them the settings
that differ by process: the interpreter, the secrets, the access to Kafka, and the files for it.
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

# An executor is a JVM, on a machine that may have to fetch an image first.
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
    """A cluster, as a driver needs to know it."""

    master: str
    # Where its executors find the driver.
    driver_host: str
    # The interpreter with Hifi's packages on their machines.
    python: str
    # Variables for the environment of their Python, with secrets; and those that name files.
    told: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, Path] = field(default_factory=dict)
    # Variables for their Java half, which reads from Kafka in some sessions.
    told_java: Mapping[str, str] = field(default_factory=dict, repr=False)
    # How many there may be; the first of them is enough to begin with.
    executors: int = 1

    def options(self, *, slots: int) -> Mapping[str, str]:
        """Spark's options for executors with this many slots each."""
        return {
            "spark.master": self.master,
            "spark.driver.host": self.driver_host,
            "spark.dynamicAllocation.enabled": "false",
            "spark.executor.instances": str(self.executors),
            "spark.executor.cores": str(slots),
            "spark.cores.max": str(slots * self.executors),
            # An executor whose machine vanishes is given up after this long: within the promised
            # minute, and after a lease, so that events it may still send are labelled.
            "spark.network.timeout": "40s",
            "spark.network.timeoutInterval": "5s",
            # Else a YARN that has lost three in a year would give up.
            "spark.executor.failuresValidityInterval": "10m",
            # Spark hides these where it shows its options.
            "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        }

    @property
    def secrets(self) -> Mapping[str, str]:
        """Options that must not stand in a command line."""
        return {f"spark.executorEnv.{name}": value for name, value in self.told_java.items()}

    def check_lock(self, conf: SparkConf) -> None:
        """Raise SetupError if secrets would go to any process that claims to be an executor."""
        has_secrets = self.files or self.told_java or any(map(self.told.get, _SECRETS))
        missing = [
            name
            for name, ways in _LOCKS.items()
            if not any((conf.get(way) or "").lower() == "true" for way in ways)
        ]
        if has_secrets and missing:
            raise SetupError(
                f"HIFI_SPARK_MASTER is {self.master}, whose executors get secrets of Hifi, and"
                " whoever reaches this process could get them: set"
                f" {' and '.join(missing)} to true in spark-defaults.conf, in the folder that"
                " SPARK_CONF_DIR names (docs/cluster.md)."
            )

    def equip(self, context: SparkContext, folder: Path) -> None:
        """Give executors settings and files; raise SetupError if none comes that can use them."""
        # The environment travels with each task, and is in no configuration that Spark shows.
        context.environment.update(self.told)
        for name, path in self.files.items():
            # The file has the same name in the folder where an executor runs.
            copy = folder / f"{name.lower()}.pem"
            shutil.copy(path, copy)
            context.addFile(str(copy))
            context.environment[name] = copy.name
        theirs = self._first_word(context)
        if theirs != (ours := version("hifi-streams")):
            raise SetupError(
                f"Executors of {self.master} have Hifi {theirs}, and this is {ours}: install the"
                " same on their machines, or name its interpreter in HIFI_SPARK_PYTHON."
            )

    def _first_word(self, context: SparkContext) -> str:
        giving_up = Timer(_EXECUTOR_WITHIN_S, _cancel, [context])
        giving_up.start()
        try:
            (installed,) = context.parallelize([0], 1).mapPartitions(_installed).collect()
        except Py4JError as error:
            raise SetupError(
                f"No executor of {self.master} has run Hifi's Python ({self.python}) within"
                f" {_EXECUTOR_WITHIN_S:.0f} s: it wants a worker with as many free cores as there"
                f" are slots, which has Hifi installed and reaches {self.driver_host}"
                " (docs/fleet.md). Spark's own words stand above."
            ) from error
        finally:
            giving_up.cancel()
        return installed


def address_towards(master: str) -> str:
    """The address by which this machine reaches a standalone cluster's master."""
    host, _, port = master.removeprefix("spark://").split(",")[0].rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as towards:
            # Nothing is sent: the kernel chooses the way.
            towards.connect(address)
            own: str = towards.getsockname()[0]
            return own
    except OSError as error:
        raise SetupError(
            f"HIFI_SPARK_MASTER is {master}, to which there is no way from here ({error}):"
            " correct it, or set HIFI_SPARK_DRIVER_HOST."
        ) from error


def _checked_master(master: str) -> str:
    """Return Spark's name of a cluster, or `local`; raise ValueError if it is neither."""
    if not _MASTER.fullmatch(master):
        raise ValueError("it must be local, spark://HOST:PORT, k8s://https://HOST:PORT or yarn")
    return master


class SparkClusterSettings(BaseSettings):
    """HIFI_SPARK_*, for every process that may have its tasks run on a cluster."""

    model_config = SettingsConfigDict(frozen=True)

    # The Spark that runs the tasks: `local`, or a cluster.
    spark_master: Annotated[str, AfterValidator(_checked_master)] = Field(
        default="local", validation_alias="HIFI_SPARK_MASTER"
    )
    # The address by which its executors reach this process; if empty, the one towards the master.
    spark_driver_host: str = Field(default="", validation_alias="HIFI_SPARK_DRIVER_HOST")
    # The interpreter that has Hifi's packages on their machines.
    spark_python: str = Field(default=sys.executable, validation_alias="HIFI_SPARK_PYTHON")

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        if self.spark_master.startswith(("k8s:", "yarn")) and not self.spark_driver_host:
            raise SetupError(
                f"HIFI_SPARK_MASTER is {self.spark_master}, whose executors must reach this"
                " process: say by which address in HIFI_SPARK_DRIVER_HOST."
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
