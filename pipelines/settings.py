"""Lists the settings of pipelines: HIFI_PIPELINES_* and nothing else."""

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
    """The settings of the pipelines service, read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_PIPELINES_", frozen=True)

    folder: Path = Path("data/pipelines")
    # The folder of this machine's copies of tables: the same for all processes of the machine.
    tables_folder: Path = Path("data/tables")
    metrics_port: Port = defaults.PIPELINES_METRICS_PORT
    # Spark's driver plans here; an executor beside it works on tenants' expressions.
    heap_mb: int = Field(default=512, ge=512)
    executor_mb: int = Field(default=768, ge=512)
    # A task has a processor to itself for as long as it runs. With more places than processors,
    # short tasks can start beside long ones.
    task_places: int = Field(default=16, ge=4)
    # How long a job should take: after a longer one, the next has fewer events.
    time_box_s: float = Field(default=5.0, gt=0)
    # The maximum number of events of each Kafka partition in a job that one pipeline has to itself.
    micro_batch_events_max: int = Field(default=50_000, ge=1)
    # A job that takes longer is cancelled: some event in it cannot be processed.
    job_s_max: float = Field(default=60.0, gt=0)
    # The same for a job that writes outside Kafka, where targets may be slow: such a target counts
    # as away, and the job is tried again.
    sink_job_s_max: float = Field(default=300.0, gt=0)
    # The maximum number of jobs with sinks at the same time, each with at most two tasks. Jobs of
    # pipelines that have just failed may take half of these places.
    sink_jobs_max: int = Field(default=4, ge=2)
    # The maximum number of own jobs at the same time, for pipelines that are far behind, fail or
    # are slow.
    own_jobs_max: int = Field(default=4, ge=1)
    # How long an archive gathers events for its next objects, and the number of events of one Kafka
    # partition at which it stops waiting.
    archive_every_s: float = Field(default=60.0, ge=0)
    archive_events_max: int = Field(default=200_000, ge=1)
    # The file that names the stores; and the folder of those stores that are folders.
    stores: Path | None = Field(default=None, validation_alias=STORES_VARIABLE)
    store_folders: Path | None = Field(default=None, validation_alias=FOLDERS_VARIABLE)
    # Whether databases may be at private addresses (loopback, RFC 1918, ...): no customer's setting
    # may reach into the network that Hifi runs in, unless the operator allows it.
    allow_private: bool = False
    # The folder of SQLite files, with a folder for each tenant. If it is not set, none are allowed.
    sqlite_folder: Path | None = None
    # The time between two checks of the ends of the streams: it adds to each event's delay.
    look_s: float = Field(default=0.1, gt=0)

    @property
    def cluster(self) -> SparkCluster | None:
        """The cluster that runs the tasks; without one, this machine runs them."""
        cluster, access = super().cluster, kafka_access()
        if cluster is None:
            return None
        # Spark's own source and sink read and write Kafka, in Java.
        for_java = {JAAS_VARIABLE: access.jaas} if access.is_named else {}
        # Tasks that follow tables on the cluster connect to Kafka as well.
        words, files = access.for_another_process()
        # Sinks unseal their secrets where they run.
        words = {**words, "HIFI_SECRET_KEYS": self.secret_keys}
        return replace(
            cluster, told=words, files=files, told_java=for_java, executors=self.spark_executors
        )
