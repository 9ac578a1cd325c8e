"""Lists what can be set for delivery from outside: HIFI_DELIVERY_* and nothing else."""

import sys
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.kafka.leases.member import SESSION_S
from shared.runtime.kafka.settings import kafka_access
from shared.runtime.settings import Port
from shared.runtime.setup_error import SetupError
from shared.runtime.spark.cluster import SparkCluster, address_towards, checked_master
from shared.runtime.spark.process import SparkProcessSettings


class DeliverySettings(SparkProcessSettings):
    """Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_DELIVERY_", frozen=True)

    folder: Path = Path("data/delivery")
    metrics_port: Port = defaults.DELIVERY_METRICS_PORT
    makes_class_archive: bool = True
    # Forty requests of 500 events: about a second's work for one destination on a small machine.
    micro_batch_events_max: int = Field(default=20_000, ge=1)
    # How long jobs that were cut off at the end of the process may take to notice.
    change_drain_s: float = Field(default=3.0, ge=0)
    # How long a task follows the streams of real-time destinations, before changed settings count:
    # they are promised within 5 s.
    follow_s: float = Field(default=2.0, gt=0)
    # A process that Kafka does not hear of for so long is dead to the others, who take its lanes.
    lease_s: float = Field(default=SESSION_S, ge=1)
    # Which Spark runs the jobs of lanes: `local`, or a cluster.
    spark_master: Annotated[str, AfterValidator(checked_master)] = Field(
        default="local", validation_alias="HIFI_SPARK_MASTER"
    )
    # By which address its executors reach this process: if empty, the one that leads to the master.
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
        if self.spark_master == "local":
            return None
        host = self.spark_driver_host or address_towards(self.spark_master)
        words, files = kafka_access().for_another_process()
        told = {"HIFI_SECRET_KEYS": self.secret_keys, **words}
        return SparkCluster(self.spark_master, host, self.spark_python, told, files)

    @property
    def flows(self) -> Path:
        # An executor's own folder: this machine's paths say nothing there, and if the executor is
        # gone, what is known goes on from the state topic.
        is_theirs = self.spark_master != "local" and self.flow_folder is None
        return Path("flows") if is_theirs else super().flows
