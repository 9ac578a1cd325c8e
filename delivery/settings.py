"""Lists what can be set for delivery from outside: HIFI_DELIVERY_* and nothing else."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.kafka.leases.member import SESSION_S
from shared.runtime.kafka.settings import kafka_access
from shared.runtime.settings import Port
from shared.runtime.spark.cluster import SparkCluster, SparkClusterSettings
from shared.runtime.spark.process import SparkProcessSettings

# More processes than that are better kept on several machines.
_WORKERS_MAX = 8
# For each worker; a quarter of them is for those that are well, and the rest for who waits.
_SLOTS_PER_WORKER, _SLOTS = 8, 32


def _worker_count() -> int:
    return min(_WORKERS_MAX, len(os.sched_getaffinity(0)))


def _own_slots(worker_count: int) -> int:
    """For each worker one for those that are well and one for real time, and two for the others."""
    return 2 * worker_count + 2


def _enough(slots: int) -> int:
    if slots < (least := _own_slots(_worker_count())):
        raise ValueError(
            f"here it is {least} at least, two for each core (eight cores at most) and two"
            f" more; unset it for {_default_slots()}"
        )
    return slots


def _default_slots() -> int:
    return max(_SLOTS, _SLOTS_PER_WORKER * _worker_count())


class DeliverySettings(SparkClusterSettings, SparkProcessSettings):
    """Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_DELIVERY_", frozen=True)

    folder: Path = Path("data/delivery")
    metrics_port: Port = defaults.DELIVERY_METRICS_PORT
    makes_class_archive: bool = True
    # Who hangs holds one for as long as its destination is waited for (delivery/lanes/turns.py).
    slots: Annotated[int, AfterValidator(_enough)] = Field(default_factory=_default_slots)
    # Forty requests of 500 events: about a second's work for one destination on a small machine.
    micro_batch_events_max: int = Field(default=20_000, ge=1)
    # How long jobs that were cut off at the end of the process may take to notice.
    change_drain_s: float = Field(default=3.0, ge=0)
    # How long a task follows the streams of real-time destinations, before changed settings count:
    # they are promised within 5 s.
    follow_s: float = Field(default=2.0, gt=0)
    # A process that Kafka does not hear of for so long is dead to the others, who take its lanes.
    lease_s: float = Field(default=SESSION_S, ge=1)
    # How many executors of a cluster this process may have, with `slots` each.
    spark_executors: int = Field(default=1, ge=1, le=64, validation_alias="HIFI_SPARK_EXECUTORS")

    @property
    def cluster(self) -> SparkCluster | None:
        cluster = super().cluster
        if cluster is None:
            return None
        words, files = kafka_access().for_another_process()
        told = {"HIFI_SECRET_KEYS": self.secret_keys, **words}
        return replace(cluster, told=told, files=files, executors=self.spark_executors)

    @property
    def flows(self) -> Path:
        # An executor's own folder: this machine's paths say nothing there, and if the executor is
        # gone, what is known goes on from the state topic.
        is_theirs = self.spark_master != "local" and self.flow_folder is None
        return Path("flows") if is_theirs else super().flows

    @property
    def worker_count(self) -> int:
        """How many worker processes share those who are well: one for each core."""
        return _worker_count() * self.spark_executors

    @property
    def all_slots(self) -> int:
        return self.slots * self.spark_executors

    @property
    def lent_slots(self) -> int:
        """Those that whoever hangs may hold."""
        return self.all_slots - _own_slots(self.worker_count)
