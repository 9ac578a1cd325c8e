"""Lists the settings of delivery: HIFI_DELIVERY_* and nothing else."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.machine.machine_size import core_count
from shared.runtime.settings import Port
from shared.runtime.spark.process import SparkProcessSettings

# More processes than this are better spread over several machines.
_WORKERS_MAX = 8
# Places for each worker; a quarter of them is for healthy destinations, the rest for waiting jobs.
_PLACES_PER_WORKER, _PLACES = 8, 32


def _worker_count() -> int:
    return min(_WORKERS_MAX, core_count())


def _own_places(worker_count: int) -> int:
    """Count two places per worker, for healthy jobs and for real time, and two for other jobs."""
    return 2 * worker_count + 2


def _enough(task_places: int) -> int:
    if task_places < (least := _own_places(_worker_count())):
        raise ValueError(
            f"it must be at least {least} here: two for each core (at most eight cores) and two"
            f" more; unset it for {_default_places()}"
        )
    return task_places


def _default_places() -> int:
    return max(_PLACES, _PLACES_PER_WORKER * _worker_count())


class DeliverySettings(SparkProcessSettings):
    """The settings of the delivery service, read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_DELIVERY_", frozen=True)

    folder: Path = Path("data/delivery")
    metrics_port: Port = defaults.DELIVERY_METRICS_PORT
    makes_class_archive: bool = True
    # A job that hangs holds a place while it waits for its destination (delivery/lanes/turns.py).
    task_places: Annotated[int, AfterValidator(_enough)] = Field(default_factory=_default_places)
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
    def all_places(self) -> int:
        return self.task_places * self.spark_executors

    @property
    def lent_places(self) -> int:
        """The places that hanging jobs may hold."""
        return self.all_places - _own_places(self.worker_count)
