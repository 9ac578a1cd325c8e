"""Chooses how to send to a destination, and how many events it gets at once."""

from dataclasses import dataclass, field
from math import ceil
from random import SystemRandom

from delivery.lanes.units import JobKind, Lane
from delivery.settings import DeliverySettings
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.flow.batch_size import BatchSize, most, per_request
from shared.flow.flow import FlowState
from shared.flow.flow_record import PUBLISH_EVERY_MS, FlowRecord
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.state_topic import StateFeed

# The assumed duration of a request until one is known. Events that go at once must be done in half
# of their time box, so that no healthy destination has events parked for lack of time.
_USUAL_MS = 100.0
# The maximum number of rounds of requests in half a time box, however quickly the destination
# answers.
_ROUNDS_MAX = 100
# The maximum number of events to send at once, in seconds at the destination's rate.
_RATE_SPAN_S = 2.0
# How often all destinations together publish their state: a record costs half as much as a
# delivery, and each process reads all records.
_RECORDS_PER_S = 100
_PUBLISH_MS_MAX = 10_000


# How often a resting lane gets its turn, in time boxes; it varies, so that turns do not coincide.
_REST_BOXES = (0.8, 1.0)
_DICE = SystemRandom()


@dataclass(slots=True)
class LaneMaker:
    """Makes the present lane of each destination."""

    settings: DeliverySettings
    config: ConfigFeed
    states: StateFeed
    # A healthy destination's lane is kept until there is news, as a plan needs hundreds of lanes.
    _lanes: dict[str, tuple[FlowRecord | None, Lane]] = field(default_factory=dict)
    _made_of: Configuration = field(default_factory=Configuration)

    def lane(self, destination: Destination) -> Lane:
        name, configuration = destination.id, self.config.configuration
        if configuration is not self._made_of:
            self._lanes, self._made_of = {}, configuration
        known = self.states.flows.get(name)
        heard, lane = self._lanes.get(name, (None, None))
        if lane is None or heard is not known or lane.destination is not destination:
            lane = self._new_lane(destination, known)
            if lane.kind is not JobKind.APART:
                self._lanes[name] = known, lane
        return lane

    def _new_lane(self, destination: Destination, known: FlowRecord | None) -> Lane:
        kind, rest_s = kind_of(destination, known), 0.0
        if self.is_to_rest(destination, known):
            kind, rest_s = JobKind.APART, self.settings.time_box_s * _DICE.uniform(*_REST_BOXES)
        return Lane(
            destination,
            kind,
            events_max(destination, self.settings, known),
            rest_s,
            self.tenant_of(destination),
            requests_max(destination, self.settings, known),
        )

    def is_resumed(self, destination: Destination) -> bool:
        """Say whether a person has resumed the destination since it was last sent to."""
        known = self.states.flows.get(destination.id)
        return known is not None and known.is_before(destination)

    def tenant_of(self, destination: Destination) -> str:
        return self.config.configuration.tenant_of(destination.stream)

    def is_to_rest(self, destination: Destination, known: FlowRecord | None) -> bool:
        # A state from before a person resumed the destination says nothing about its health now.
        if known is None or known.is_before(destination):
            return destination.is_disabled
        after_s = self.settings.time_box_s
        return destination.is_disabled or known.is_in_lasting_trouble(
            now_ms=now_ms(), after_s=after_s
        )


def kind_of(destination: Destination, known: FlowRecord | None) -> JobKind:
    is_well = known is None or (known.state is FlowState.CLOSED and not known.flow.is_slow)
    if not is_well:
        return JobKind.APART
    return JobKind.FOLLOWING if destination.latency == "realtime" else JobKind.SHARED


def requests_max(
    destination: Destination, settings: DeliverySettings, known: FlowRecord | None = None
) -> int:
    """Return the maximum number of requests in one turn: one or more for each strand sent."""
    usual_ms = (known.flow.concurrency.mean_ms if known else 0.0) or _USUAL_MS
    rounds = max(1, min(_ROUNDS_MAX, int(500 * settings.time_box_s / usual_ms)))
    return destination.requests_at_once_max * rounds


def events_max(
    destination: Destination, settings: DeliverySettings, known: FlowRecord | None = None
) -> int:
    """Return how many events to send at once: as many as it can take in half of its time box."""
    size, count_max = known.flow.batch_size if known else BatchSize(), destination.request_count_max
    events = per_request(size, count_max) * requests_max(destination, settings, known)
    if size.events:
        # The halves of a batch that was too large go one after another, beside other batches.
        events += destination.requests_at_once_max * most(size, count_max) / 2
    limits = [settings.micro_batch_events_max, ceil(events)]
    if destination.rate_per_s is not None:
        limits.append(ceil(destination.rate_per_s * _RATE_SPAN_S))
    return min(limits)


def publish_every_ms(destination_count: int) -> int:
    """Return how often the unchanged state of a destination is published."""
    every_ms = 1000 * destination_count // _RECORDS_PER_S
    return max(PUBLISH_EVERY_MS, min(_PUBLISH_MS_MAX, every_ms))
