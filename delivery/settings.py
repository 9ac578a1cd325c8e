"""Lists the settings of delivery: HIFI_DELIVERY_* and nothing else."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.settings import Port
from shared.runtime.spark.process import SparkProcessSettings

# More processes than this are better spread over several machines.
_WORKERS_MAX = 8
# Slots for each worker; a quarter of them is for healthy destinations, the rest for waiting jobs.
_SLOTS_PER_WORKER, _SLOTS = 8, 32


def _worker_count() -> int:
    return min(_WORKERS_MAX, len(os.sched_getaffinity(0)))


def _own_slots(worker_count: int) -> int:
    """Count two slots per worker, for healthy jobs and for real time, and two for other jobs."""
    return 2 * worker_count + 2


def _enough(slots: int) -> int:
    if slots < (least := _own_slots(_worker_count())):
        raise ValueError(
            f"it must be at least {least} here: two for each core (at most eight cores) and two"
            f" more; unset it for {_default_slots()}"
        )
    return slots


def _default_slots() -> int:
    return max(_SLOTS, _SLOTS_PER_WORKER * _worker_count())


class DeliverySettings(SparkProcessSettings):
    """The settings of the delivery service, read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_DELIVERY_", frozen=True)

    folder: Path = Path("data/delivery")
    metrics_port: Port = defaults.DELIVERY_METRICS_PORT
    makes_class_archive: bool = True
    # A job that hangs holds a slot while it waits for its destination (delivery/lanes/turns.py).
    slots: Annotated[int, AfterValidator(_enough)] = Field(default_factory=_default_slots)
    # Forty requests of 500 events: about a second's work for one destination on a small machine.
    micro_batch_events_max: int = Field(default=20_000, ge=1)
    # How long a task follows the streams of real-time destinations. Changed settings take effect
    # only after that, and Hifi promises them within 5 s.
    follow_s: float = Field(default=2.0, gt=0)

    @property
    def worker_count(self) -> int:
        """The number of worker processes for healthy destinations: one for each core."""
        return _worker_count() * self.spark_executors

    @property
    def all_slots(self) -> int:
        return self.slots * self.spark_executors

    @property
    def lent_slots(self) -> int:
        """The slots that hanging jobs may hold."""
        return self.all_slots - _own_slots(self.worker_count)
