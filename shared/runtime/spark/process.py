"""Starts one of our Spark processes with lanes: its settings, folder and session.

It locks its folder, shows metrics and health, checks the login at Kafka, and starts Spark.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import structlog
from pydantic import Field
from pyspark.sql import SparkSession

from shared.retry.schedule import RetrySchedule
from shared.runtime.files.one_owner import own_folder
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.clients import check_access
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.leases.member import SESSION_S
from shared.runtime.kafka.settings import kafka_access
from shared.runtime.logs import configure_logs
from shared.runtime.machine.user import user_name
from shared.runtime.settings import SecretSettings, SparkServiceSettings, operator_errors
from shared.runtime.setup_error import KafkaRefusedError, KafkaUnavailableError
from shared.runtime.spark.cluster import SparkCluster, SparkClusterSettings
from shared.runtime.spark.lane_metrics import LaneMetrics
from shared.runtime.spark.session import SparkSettings, require_running, running_spark

log = structlog.get_logger()

# A JVM answers within milliseconds; one that collects garbage for a minute is useless.
SPARK_WITHIN_S = 60.0
_ASK_S = 1.0


class LaneProcessSettings(SparkClusterSettings, SparkServiceSettings):
    """The settings that all of them share; a subclass sets the prefix and the defaults."""

    # Spark mostly waits for HTTP; 1 GB is enough for the lanes of a small machine.
    heap_mb: int = Field(default=1024, ge=512)
    # Tasks at the same time. They wait for HTTP, and an unused place costs nothing.
    task_places: int = Field(default=32, ge=1)
    # How long a stopping process waits for running work.
    drain_s: float = Field(default=20.0, ge=0)
    # How long jobs that are cut off at the end of the process may take to react.
    change_drain_s: float = Field(default=3.0, ge=0)
    # A process that Kafka has not heard for this long counts as dead; others take its work.
    lease_s: float = Field(default=SESSION_S, ge=1)
    # A lane with work that reports nothing for this long counts as stalled.
    stalled_after_s: float = Field(default=60.0, gt=0)
    # One process of a machine is enough to write the archive that speeds up the next starts.
    makes_class_archive: bool = False
    # The maximum number of a cluster's executors for this process, with `places` each.
    spark_executors: int = Field(default=1, ge=1, le=64, validation_alias="HIFI_SPARK_EXECUTORS")

    @property
    def home(self) -> Path:
        """The process's own folder, with its lock and its scratch space."""
        return self.folder.absolute()

    def session(
        self,
        service: str,
        *,
        worker_daemon: str,
        has_rows_in_jvm: bool = False,
        executor_mb: int = 0,
        **more: str,
    ) -> SparkSettings:
        """Return the settings of the process's Spark session; `more` are its special options.

        On a cluster, tasks run outside the driver anyway; on this machine only with `executor_mb`.
        """
        return SparkSettings(
            name=f"hifi-{service}",
            service=service,
            folder=self.home,
            cache=self.jars_cache,
            task_places=self.task_places,
            heap_mb=self.heap_mb,
            executor_mb=0 if self.cluster else executor_mb,
            worker_daemon=worker_daemon,
            makes_class_archive=self.makes_class_archive,
            has_rows_in_jvm=has_rows_in_jvm,
            cluster=self.cluster,
            more=more,
        )


class SparkProcessSettings(LaneProcessSettings, SecretSettings):
    """The settings of processes that send to destinations."""

    # After this long a micro-batch starts no more requests, and parks the waiting events.
    time_box_s: float = Field(default=5.0, gt=0)
    # Where this machine's workers share their state of destinations; None means in `folder`. Two
    # processes with the same folder share it too.
    flow_folder: Path | None = None
    # Values below 1 shorten all waits of the retry schedule; for tests and demonstrations.
    time_scale: float = Field(default=1.0, gt=0)
    # Whether destinations may have private addresses (loopback, RFC 1918, ...): customers cannot
    # reach the network that Hifi runs in, unless its operator allows it.
    allow_private: bool = False

    @property
    def flows(self) -> Path:
        if self.spark_master != "local" and self.flow_folder is None:
            # A folder of the executor, where this machine's paths do not exist. If the executor is
            # lost, its state is restored from the state topic.
            return Path("flows")
        return (self.flow_folder or self.folder / "flows").absolute()

    @property
    def cluster(self) -> SparkCluster | None:
        cluster = super().cluster
        if cluster is None:
            return None
        words, files = kafka_access().for_another_process()
        variables = {"HIFI_SECRET_KEYS": self.secret_keys, **words}
        return replace(cluster, told=variables, files=files, executors=self.spark_executors)

    @property
    def schedule(self) -> RetrySchedule:
        return RetrySchedule().scaled(self.time_scale)


@contextmanager
def lane_process(
    service: str, settings: LaneProcessSettings, metrics: LaneMetrics
) -> Iterator[Health]:
    """Start everything before Spark. A set-up mistake ends the process with one sentence."""
    configure_logs(service=service, level=settings.log_level)
    with operator_errors(f"hifi {service}"), own_folder(settings.home, what=service):
        user_name()
        health = Health()
        metrics.serve(
            host=settings.metrics_host,
            port=settings.metrics_port,
            probes=health.probes,
            setting=f"HIFI_{service.upper()}_METRICS_PORT",
        )
        asyncio.run(_look_at_kafka(settings.bootstrap_servers))
        yield health
    log.info("service.stopped")


@contextmanager
def spark_process(
    service: str, settings: LaneProcessSettings, metrics: LaneMetrics, *, worker_daemon: str
) -> Iterator[tuple[SparkSession, Health]]:
    """Start everything before the first lane, Spark included."""
    session = settings.session(service, worker_daemon=worker_daemon)
    with lane_process(service, settings, metrics) as health, running_spark(session) as spark:
        yield spark, health


async def keep_asking(spark: SparkSession, answers: Pulse) -> None:
    """Check repeatedly that Spark still runs; a hanging check delays nothing else.

    It has its own thread, because unresolvable names block the shared threads.
    """
    thread = ThreadPoolExecutor(1, "spark")
    while True:
        await asyncio.get_running_loop().run_in_executor(thread, require_running, spark)
        answers.beat()
        await asyncio.sleep(_ASK_S)


async def _look_at_kafka(bootstrap_servers: str) -> None:
    """Check our login and right to read the config: Spark would fail later, with long errors."""
    await check_access(bootstrap_servers)
    try:
        await read_config(bootstrap_servers)
    except KafkaRefusedError:
        raise
    except KafkaUnavailableError as error:
        # A restarting Kafka will be back when Spark is up.
        log.info("service.kafka_away", error=str(error))
