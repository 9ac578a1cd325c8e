"""Lists the settings of the retrier: HIFI_RETRIER_* and nothing else."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.settings import Port
from shared.runtime.spark.process import SparkProcessSettings


class RetrierSettings(SparkProcessSettings):
    """The settings of the retrier service, read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_RETRIER_", frozen=True)

    folder: Path = Path("data/retrier")
    metrics_port: Port = defaults.RETRIER_METRICS_PORT
    # Half of the places are for micro-batches that wait for slow destinations; an unused place
    # costs nothing.
    task_places: int = Field(default=32, ge=2)
    # For how long a micro-batch of due events, which all destinations share, may start requests.
    # Other events are late by at most this time, plus the second that the micro-batch waits for an
    # answer, plus the time between two checks.
    time_box_s: float = Field(default=1.0, gt=0)
    # The same for events of destinations that answer slowly, which wait for one another only.
    slow_time_box_s: float = Field(default=5.0, gt=0)
    # How often to look for due events in each tier: no event is late by more than this time.
    look_s: float = Field(default=0.5, gt=0)
    # Per Kafka partition and micro-batch, so that one tier's many events do not delay another's
    # few. Parked events, which may be many, get a tenth of this while others are due.
    micro_batch_events_max: int = Field(default=5_000, ge=1)
    # The events per second that all replays of a process may put into the tiers.
    replays_per_s: float = Field(default=2_000.0, gt=0)
