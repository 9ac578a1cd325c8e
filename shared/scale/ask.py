"""The traffic that a plan must carry; impossible traffic is refused at once."""

from dataclasses import dataclass

from shared.scale.catalogue import BrokerKind
from shared.scale.scale_error import ImpossibleError, ScaleError

_HOUR_S = 3_600
# A long weekend without anybody on call.
OUTAGE_S = 72 * _HOUR_S
# The longest time of retries, and a day to notice that they have stopped.
RETRIES_S = 72 * _HOUR_S
NOTICE_S = 24 * _HOUR_S
# The gateway's default limit for an event (HIFI_GATEWAY_EVENT_BYTES_MAX can be 4 % more).
EVENT_BYTES_MAX = 1_000_000
# The default number of events in a request to a destination (batch_count_max).
DESTINATION_BATCH = 500


@dataclass(frozen=True, slots=True)
class Ask:
    """The traffic of a whole installation at its peak."""

    events_per_s: float
    event_bytes: int = 500
    # A mean day's traffic as a share of the peak: it determines storage and all costs by the byte.
    mean_share: float = 1.0
    # The average number of destinations of an event.
    fan_out: float = 1.0
    # The retention of streams, and the longest outage that it must cover.
    retention_s: float = OUTAGE_S + RETRIES_S + NOTICE_S
    outage_s: float = OUTAGE_S
    # The events in a request to the gateway, and in a request to a destination.
    batch: int = 100
    destination_batch: int = DESTINATION_BATCH
    # The number of similar streams, and the busiest ordering key's share of a stream.
    streams: int = 1
    hot_key_share: float = 0.0
    # The number of Kafka partitions of a stream; by default it is computed.
    partitions: int | None = None
    # The shares of each destination's events that are retried, and that become dead letters.
    retry_share: float = 0.01
    dead_share: float = 0.0001
    # Whether two of three zones must be able to carry all of the traffic.
    survives_zone: bool = True
    # Whether consumers read from their own zone (Kafka's client.rack).
    reads_own_zone: bool = False
    # The share of deliveries that goes to the internet.
    internet_share: float = 1.0
    kafka: BrokerKind = "express"
    # The size of the brokers; by default the cheapest is chosen.
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
                f"The gateway refuses an event of {self.event_bytes:,} bytes: its limit is"
                f" {EVENT_BYTES_MAX:,}. Store large bodies elsewhere, and send their addresses.",
            )
        needed_s = self.outage_s + RETRIES_S + NOTICE_S
        if self.retention_s < needed_s:
            raise ImpossibleError(
                "retention",
                f"Streams that are kept for {self.retention_s / _HOUR_S:g} h would lose events:"
                f" an outage of {self.outage_s / _HOUR_S:g} h, {RETRIES_S // _HOUR_S} h of retries"
                f" and {NOTICE_S // _HOUR_S} h to notice need {needed_s / _HOUR_S:g} h. Plan for"
                " a longer retention or a shorter outage.",
            )
