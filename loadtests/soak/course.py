"""Describes a soak: its length, its rate, its days of traffic."""

from dataclasses import dataclass

from shared.config.destination import Latency

# A day is as short as the time that processes get to settle, so that this time includes a peak.
_DAY_S = 300.0
# A day's lowest and highest rate, as multiples of the mean.
_NIGHT, _NOON = 0.4, 1.6


@dataclass(frozen=True, slots=True)
class Course:
    """The plan of a soak."""

    rate: float
    duration_s: float
    seed: int = 1
    every_s: float = 75.0
    batch: int = 10
    event_bytes: int = 500
    latency: Latency = "micro-batch"

    @property
    def plan(self) -> str:
        """Whole days of equal length, with `rate` as their average."""
        days = max(1, round(self.duration_s / _DAY_S))
        day = f"diurnal:{_NIGHT * self.rate:g}-{_NOON * self.rate:g}:{self.duration_s / days:g}s"
        return ",".join([day] * days)
