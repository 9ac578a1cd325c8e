"""Says what somebody wants Hifi to carry, and refuses at once what nothing could."""

from dataclasses import dataclass

from shared.scale.catalogue import BrokerKind
from shared.scale.scale_error import ImpossibleError, ScaleError

_HOUR_S = 3_600
# A long weekend without anybody who looks.
OUTAGE_S = 72 * _HOUR_S
# How long an event is tried again at most, and a day to notice that it is not.
RETRIES_S = 72 * _HOUR_S
NOTICE_S = 24 * _HOUR_S
# The largest event that the gateway takes (HIFI_GATEWAY_EVENT_BYTES_MAX can be 4 % more).
EVENT_BYTES_MAX = 1_000_000
# Events in a request to a destination that asks for nothing else (batch_count_max).
DESTINATION_BATCH = 500


@dataclass(frozen=True, slots=True)
class Ask:
    """The traffic of a whole installation, at the peak that it must hold."""

    events_per_s: float
    event_bytes: int = 500
    # A mean day's part of the peak: storage, and everything that is paid by the byte, goes by it.
    mean_share: float = 1.0
    # The number of destinations that an event goes to, on the average.
    fan_out: float = 1.0
    # How long streams are kept, and the longest outage that they must outlast.
    retention_s: float = OUTAGE_S + RETRIES_S + NOTICE_S
    outage_s: float = OUTAGE_S
    # Events in a request to the gateway, and in one to a destination.
    batch: int = 100
    destination_batch: int = DESTINATION_BATCH
    # Streams that are about alike; and how much of a stream the busiest ordering key has.
    streams: int = 1
    hot_key_share: float = 0.0
    # Kafka partitions of a stream, where their number is given. Without it, as many as it takes.
    partitions: int | None = None
    # The parts of each destination's events that wait and are tried again, and that die.
    retry_share: float = 0.01
    dead_share: float = 0.0001
    # Whether all of it must be carried while one of three zones is away.
    survives_zone: bool = True
    # Whether consumers read from their own zone (Kafka's client.rack).
    reads_own_zone: bool = False
    # The part of the deliveries that leaves for the internet.
    internet_share: float = 1.0
    kafka: BrokerKind = "express"
    # The size of the brokers, where it is given. Without it, the cheapest.
    broker: str | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("events/s", self.events_per_s),
            ("the event's bytes", self.event_bytes),
            ("the batch", self.batch),
            ("the destinations' batch", self.destination_batch),
            ("the number of streams", self.streams),
            ("the retention", self.retention_s),
        ):
            if not value > 0:
                raise ScaleError(f"A plan needs {name}: it is {value:g} and must be above 0.")
        for name, value in (
            ("mean share", self.mean_share),
            ("hot key share", self.hot_key_share),
            ("retry share", self.retry_share),
            ("dead share", self.dead_share),
            ("internet share", self.internet_share),
        ):
            if not 0 <= value <= 1:
                raise ScaleError(f"The {name} is {value:g} and must be from 0 to 1.")
        if self.fan_out < 0 or self.outage_s < 0:
            raise ScaleError("Fan-out and outage must be 0 or more.")
        self._refuse_what_nothing_carries()

    def _refuse_what_nothing_carries(self) -> None:
        if self.event_bytes > EVENT_BYTES_MAX:
            raise ImpossibleError(
                "event size",
                f"An event of {self.event_bytes:,} bytes is not taken: the gateway's limit is"
                f" {EVENT_BYTES_MAX:,}. Put large bodies elsewhere, and send where they are.",
            )
        needed_s = self.outage_s + RETRIES_S + NOTICE_S
        if self.retention_s < needed_s:
            raise ImpossibleError(
                "retention",
                f"Streams that are kept for {self.retention_s / _HOUR_S:g} h would lose events:"
                f" an outage of {self.outage_s / _HOUR_S:g} h, {RETRIES_S // _HOUR_S} h of retries"
                f" and {NOTICE_S // _HOUR_S} h to notice need {needed_s / _HOUR_S:g} h. Keep them"
                " for longer, or plan for a shorter outage.",
            )
