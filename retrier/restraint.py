"""Finds out when a replay must wait, so that its events stay in their stream, not in the tiers.

Events in a tier delay all later ones, including those of other destinations.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from shared.event.record import KafkaPartition
from shared.event.topics import retry_topic
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord
from shared.retry.replay import ReplayOrder
from shared.retry.schedule import SLOW, RetrySchedule
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.leases.fenced_positions import FencedPositions
from shared.runtime.kafka.reader import KafkaReader
from shared.runtime.kafka.state_topic import StateFeed

# The maximum number of waiting events of all replays of a tenant; others stay in their streams.
WAITING_MAX = 20_000
# A destination that parks more events than this in the first tier's delay gets more than it takes.
_PARKED_MAX = 500
_SHUT = (FlowState.OPEN, FlowState.HALF_OPEN, FlowState.HELD, FlowState.RATE_LIMITED)


def part_of(tenant: str, running: Sequence[str]) -> float:
    """Return the share of one replay of a tenant; all tenants with replays get equal shares."""
    return 1 / len({tenant, *running}) / max(1, running.count(tenant))


class Restraint:
    """The reasons that hold back one replay."""

    def __init__(
        self,
        order: ReplayOrder,
        *,
        config: ConfigFeed,
        states: StateFeed,
        fenced: FencedPositions,
        reader: KafkaReader,
        schedule: RetrySchedule,
        tenant_count: Callable[[], int],
    ) -> None:
        self._order, self._config, self._states = order, config, states
        self._fenced, self._reader = fenced, reader
        # How many replays of its tenant are running.
        self._tenant_count = tenant_count
        # Slices in the first tier: the place of the newest event of each, and its event count.
        self._put: deque[tuple[KafkaPartition, int, int]] = deque()
        self._parks = _Parks(within_s=schedule.tiers[0].delay_s)

    @property
    def failure(self) -> str:
        """Why the replay cannot continue at all; empty if it can."""
        known = self._config.configuration
        stream = known.streams.get(self._order.stream)
        if stream is None or stream.tenant != self._order.tenant:
            return "the stream was removed"
        if self._order.destination_id not in known.destinations:
            return "the destination was removed"
        return ""

    @property
    def rate_max(self) -> float:
        """The lower of the destination's rate and the requested rate."""
        destination = self._config.configuration.destinations[self._order.destination_id]
        return min(self._order.rate_per_s or math.inf, destination.rate_per_s or math.inf)

    def has_put(self, where: KafkaPartition, offset: int, event_count: int) -> None:
        self._put.append((where, offset, event_count))

    async def why(self, now_ms: int) -> str:
        """Say why none of its events may be sent now; empty if some may."""
        destination = self._config.configuration.destinations[self._order.destination_id]
        flow = self._states.flows.get(destination.id)
        if destination.is_paused:
            return "the destination is paused"
        if destination.is_disabled or (flow and flow.state is FlowState.DISABLED):
            return "the destination is disabled"
        # After that time, the next event probes the destination.
        if flow and flow.state in _SHUT and flow.until_ms > now_ms:
            return f"nothing is sent to the destination: {flow.state.value}"
        if flow and self._parks.grow(flow) > _PARKED_MAX:
            return "the destination gets more events than it takes"
        return await self._crowd(is_slow=flow is not None and flow.flow.is_slow)

    async def _crowd(self, *, is_slow: bool) -> str:
        """Say whether too many events wait, by the retrier's positions; empty if not."""
        if not self._put:
            return ""
        max_ = WAITING_MAX // max(1, self._tenant_count())
        reaches = await self._fenced.read()
        where = self._put[-1][0]
        passed = reaches[where].at if where in reaches else 0
        while self._put and self._put[0][1] < passed:
            self._put.popleft()
        if sum(event_count for *_, event_count in self._put) >= max_:
            return f"{max_:,} of its events already wait to be sent"
        if is_slow:
            # Its due events move to the tier for slow destinations.
            slow = KafkaPartition(retry_topic(SLOW.name), where.partition)
            end = (await self._reader.ends([slow.topic])).get(slow, 0)
            if slow in reaches and end - reaches[slow].at >= max_:
                return "the destination is slow, and many events for slow ones already wait"
        return ""


class _Parks:
    """Counts a destination's recently parked events, by the reports of its machines."""

    def __init__(self, *, within_s: float) -> None:
        self._within_s = within_s
        self._counts: dict[str, int] = {}
        self._grown: deque[tuple[float, int]] = deque()

    def grow(self, told: FlowRecord) -> int:
        now_s, count = time.monotonic(), sum(told.flow.parks.values())
        if grown := count - self._counts.setdefault(told.store, count):
            self._counts[told.store] = count
            self._grown.append((now_s, max(0, grown)))
        while self._grown and self._grown[0][0] < now_s - self._within_s:
            self._grown.popleft()
        return sum(each for _, each in self._grown)
