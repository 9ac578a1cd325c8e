"""Decides what may be set from outside for delivery: HIFI_DELIVERY_* and nothing else."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime.lane_driver import LaneDriverSettings


class DeliverySettings(LaneDriverSettings):
    """Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_DELIVERY_", frozen=True)

    folder: Path = Path("data/delivery")
    metrics_port: int = 8082
    makes_class_archive: bool = True
    # Forty requests of 500 events: about a second's work for one destination on a small machine.
    micro_batch_events_max: int = Field(default=20_000, ge=1)
