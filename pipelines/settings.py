"""Lists what can be set for pipelines from outside: HIFI_PIPELINES_* and nothing else."""

from dataclasses import replace
from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.archive.stores import FOLDERS_VARIABLE, STORES_VARIABLE
from shared.runtime.kafka.settings import JAAS_VARIABLE, kafka_access
from shared.runtime.settings import Port, SecretSettings
from shared.runtime.spark.cluster import SparkCluster
from shared.runtime.spark.process import LaneProcessSettings


class PipelinesSettings(LaneProcessSettings, SecretSettings):
    """Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_PIPELINES_", frozen=True)

    folder: Path = Path("data/pipelines")
    # Where this machine's copies of tables are: the same folder for all processes of the machine.
    tables_folder: Path = Path("data/tables")
    metrics_port: Port = defaults.PIPELINES_METRICS_PORT
    # Spark's driver plans here; tenants' expressions are worked on in an executor beside it.
    heap_mb: int = Field(default=512, ge=512)
    executor_mb: int = Field(default=768, ge=512)
    # A task has a processor to itself for as long as it runs; more than there are let those that
    # are short begin beside those that are long.
    slots: int = Field(default=16, ge=4)
    # How long a job should take: one that takes longer has less the next time.
    time_box_s: float = Field(default=5.0, gt=0)
    # Of each Kafka partition, in a job that one pipeline has for itself.
    micro_batch_events_max: int = Field(default=50_000, ge=1)
    # A job that takes longer is cut off: something in it cannot be worked on.
    job_s_max: float = Field(default=60.0, gt=0)
    # The same of a job that writes to somewhere else than Kafka, where they may be slow: it is told
    # as away then, and tried again.
    sink_job_s_max: float = Field(default=300.0, gt=0)
    # Jobs at the same time that do so, each with at most two tasks; of those that have just failed,
    # half as many.
    sink_jobs_max: int = Field(default=4, ge=2)
    # Jobs at the same time of pipelines that are far behind, fail or are slow.
    own_jobs_max: int = Field(default=4, ge=1)
    # How long an archive waits for more events before it makes an object of those there are, and
    # how many of one Kafka partition do not wait.
    archive_every_s: float = Field(default=60.0, ge=0)
    archive_events_max: int = Field(default=200_000, ge=1)
    # The file that names the stores there are; and the folder that those are in which are folders.
    stores: Path | None = Field(default=None, validation_alias=STORES_VARIABLE)
    store_folders: Path | None = Field(default=None, validation_alias=FOLDERS_VARIABLE)
    # Whether databases may be at private addresses (loopback, RFC 1918, ...): no customer's setting
    # may reach into the network that Hifi runs in, unless whoever runs it says so.
    allow_private: bool = False
    # Where SQLite files are, in a folder for each tenant; None: nobody may have any.
    sqlite_folder: Path | None = None
    # How often the ends of the streams are asked for: a part of what an event is late by.
    look_s: float = Field(default=0.1, gt=0)

    @property
    def cluster(self) -> SparkCluster | None:
        """Who runs the tasks; None: this machine."""
        cluster, access = super().cluster, kafka_access()
        if cluster is None:
            return None
        # Spark's own source and sink read and write Kafka, in Java.
        told = {JAAS_VARIABLE: access.jaas} if access.is_named else {}
        # Who follows tables there enters Kafka as well.
        words, files = access.for_another_process()
        # Sinks' secrets are opened where they are used.
        words = {**words, "HIFI_SECRET_KEYS": self.secret_keys}
        return replace(
            cluster, told=words, files=files, told_java=told, executors=self.spark_executors
        )
