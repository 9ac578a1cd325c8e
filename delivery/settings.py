"""Lists what can be set for delivery from outside: HIFI_DELIVERY_* and nothing else."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.kafka.leases.member import SESSION_S
from shared.runtime.settings import Port
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
