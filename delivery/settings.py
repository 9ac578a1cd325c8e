"""Lists what can be set for delivery from outside: HIFI_DELIVERY_* and nothing else."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.config.destination import Latency
from shared.runtime import defaults
from shared.runtime.settings import Port
from shared.runtime.spark.lane_driver import LaneDriverSettings


class DeliverySettings(LaneDriverSettings):
    """Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_DELIVERY_", frozen=True)

    folder: Path = Path("data/delivery")
    metrics_port: Port = defaults.DELIVERY_METRICS_PORT
    makes_class_archive: bool = True
    # Forty requests of 500 events: about a second's work for one destination on a small machine.
    micro_batch_events_max: int = Field(default=20_000, ge=1)
    # Which destinations this process serves: real time needs Spark set up otherwise (ADR 0022), and
    # so a process of its own beside the first, with the same folder.
    latency: Latency = "micro-batch"
    # How often a real-time lane writes its position down, Spark's least being 5 s: what a crash
    # sends again, against a pause of a part of a second each time.
    realtime_interval_s: int = Field(default=60, ge=5)

    @property
    def home(self) -> Path:
        home = super().home
        return home / "realtime" if self.latency == "realtime" else home

    @property
    def stall_limit_s(self) -> float:
        is_realtime = self.latency == "realtime"
        return self.stalled_after_s + (self.realtime_interval_s if is_realtime else 0)
