"""Defines which topics the retrier's two lanes read, and how long each waits for answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from delivery.sending import TROUBLE_WAIT_S, Plan
from retrier.settings import RetrierSettings
from shared.event.topics import RETRIER, RETRIER_SLOW, retry_topic, tier_topics
from shared.flow.flow import SLOW_MS
from shared.retry.schedule import SLOW

# A round of the slow lane takes as long as its slowest answer, from any destination.
SLOW_TIMEOUT_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class RetryLane:
    """One of the retrier's two lanes."""

    # How long events wait in each of its topics.
    delays_s: Mapping[str, float]
    time_box_s: float
    patience_s: float | None
    # The maximum of the time limit that an owner may set for a destination.
    timeout_s_max: float = math.inf


def lanes(settings: RetrierSettings) -> dict[str, RetryLane]:
    """Return both lanes; they stay the same when a destination changes."""
    tiers = settings.schedule.tiers
    delays_s = {topic: tier.delay_s for tier in tiers for topic in tier_topics(tier.name)}
    slow = {retry_topic(SLOW.name): SLOW.delay_s}
    return {
        RETRIER: RetryLane(delays_s, settings.time_box_s, SLOW_MS / 1000),
        RETRIER_SLOW: RetryLane(slow, settings.slow_time_box_s, None, SLOW_TIMEOUT_S_MAX),
    }


def plan_of(lane: RetryLane, settings: RetrierSettings) -> Plan:
    """Return the plan for the tasks of a lane; they look up destinations when an event is due."""
    return Plan(
        reads="retry",
        destinations={},
        # Retry only once in place, in case a connection broke. Delivery retries again after a
        # second, but here a destination that is down must not hold up the others' due events.
        schedule=replace(settings.schedule, local_delays_s=settings.schedule.local_delays_s[:1]),
        time_box_s=lane.time_box_s,
        patience_s=lane.patience_s,
        timeout_s_max=lane.timeout_s_max,
        # A lane serves many destinations: one in trouble must not delay the others' due events.
        trouble_wait_s_max=TROUBLE_WAIT_S,
        allows_private=settings.allow_private,
        flow_folder=settings.flows,
    )
