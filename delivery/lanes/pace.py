"""Says how a destination is sent to, and how many events it can take at once."""

from math import ceil

from delivery.lanes.units import JobKind
from delivery.settings import DeliverySettings
from shared.config.destination import Destination
from shared.flow.flow import FlowState
from shared.flow.flow_record import PUBLISH_EVERY_MS, FlowRecord

# What is sent at once is to be done in half of its time box, so that no healthy destination has
# events parked for lack of time: this is how long an answer takes until one is known.
_USUAL_MS = 100.0
# However quickly it answers, so many requests one after the other are enough.
_ROUNDS_MAX = 100
# And no more than so many seconds' worth of what a destination's rate lets through.
_RATE_SPAN_S = 2.0
# All destinations together tell how they fare so often: telling it costs half of what a delivery
# does, and each process hears of all.
_RECORDS_PER_S = 200
_PUBLISH_MS_MAX = 10_000


def kind_of(destination: Destination, known: FlowRecord | None) -> JobKind:
    is_well = known is None or (known.state is FlowState.CLOSED and not known.flow.is_slow)
    if not is_well:
        return JobKind.APART
    return JobKind.FOLLOWING if destination.latency == "realtime" else JobKind.SHARED


def requests_max(
    destination: Destination, settings: DeliverySettings, known: FlowRecord | None = None
) -> int:
    """The most requests: each strand that is sent has one of its own at least."""
    usual_ms = (known.flow.concurrency.mean_ms if known else 0.0) or _USUAL_MS
    rounds = max(1, min(_ROUNDS_MAX, int(500 * settings.time_box_s / usual_ms)))
    return destination.parallel_max * rounds


def events_max(
    destination: Destination, settings: DeliverySettings, known: FlowRecord | None = None
) -> int:
    """The most events that are sent at once: what it can take in half of its time box."""
    limits = [
        settings.micro_batch_events_max,
        destination.request_count_max * requests_max(destination, settings, known),
    ]
    if destination.rate_per_s is not None:
        limits.append(ceil(destination.rate_per_s * _RATE_SPAN_S))
    return min(limits)


def publish_every_ms(destination_count: int) -> int:
    """How often others hear of a destination that fares as before."""
    every_ms = 1000 * destination_count // _RECORDS_PER_S
    return max(PUBLISH_EVERY_MS, min(_PUBLISH_MS_MAX, every_ms))
