"""Schedules retries: local delays, retry tiers, deadline.

Every number is literal and jitter only adds to a wait: an event is never tried earlier than the
schedule or the destination asked. Nothing here reads a clock or rolls dice.
"""

from dataclasses import dataclass, replace

from shared.event.topics import SLOW_TIER

# 0 to 20 % is added, as Hook0 and Svix do; a wait is never shorter than the delay itself.
JITTER_FRACTION = 0.2


@dataclass(frozen=True, slots=True)
class Tier:
    """One fixed delay, one topic. When time is scaled, the delay changes, but not the name."""

    name: str
    delay_s: float


# For events that are due and wait only for the lane of slow destinations.
SLOW = Tier(SLOW_TIER, 0.0)


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """When to try again. The defaults span what Standard Webhooks and Stripe promise (3 days)."""

    # Within the micro-batch; together with their jitter they stay under its time budget.
    local_delays_s: tuple[float, ...] = (0.2, 1.0)
    tiers: tuple[Tier, ...] = (
        Tier("30s", 30.0),
        Tier("5m", 300.0),
        Tier("30m", 1_800.0),
        Tier("2h", 7_200.0),
        Tier("8h", 28_800.0),
    )
    # How many times an event waits in each tier, in order: 12 waits, 66 h 35 m 30 s in all.
    tier_rounds: tuple[int, ...] = (1, 1, 1, 1, 8)
    deadline_s: float = 259_200.0

    def __post_init__(self) -> None:
        delays = [tier.delay_s for tier in self.tiers]
        if not delays or delays != sorted(delays) or delays[0] <= 0:
            raise ValueError("there must be tiers, above zero, and from short to long")
        if len(self.tier_rounds) != len(self.tiers) or min(self.tier_rounds) < 0:
            raise ValueError("tier_rounds must name a count for each tier")

    def scaled(self, time_scale: float) -> "RetrySchedule":
        """The same schedule in faster time, so that a test takes seconds for 72 h."""
        return replace(
            self,
            local_delays_s=tuple(delay * time_scale for delay in self.local_delays_s),
            tiers=tuple(replace(tier, delay_s=tier.delay_s * time_scale) for tier in self.tiers),
            deadline_s=self.deadline_s * time_scale,
        )

    def local_delay_s(self, local_attempt_count: int, *, roll: float) -> float | None:
        """The wait after this many attempts in this micro-batch; None when no local try is left."""
        if local_attempt_count > len(self.local_delays_s):
            return None
        return jittered(self.local_delays_s[local_attempt_count - 1], roll=roll)

    def tier_after(self, attempt_count: int) -> Tier | None:
        """The tier after this many rounds of attempts; None after the last one."""
        rounds = zip(self.tiers, self.tier_rounds, strict=True)
        walk = [tier for tier, count in rounds for _ in range(count)]
        return walk[attempt_count - 1] if attempt_count <= len(walk) else None

    def hold_s(self, attempt_count: int) -> float:
        """How long an event that nothing may overtake waits in place after this many rounds.

        No longer than in the second tier, as all events behind it wait as well.
        """
        return self.tiers[: min(attempt_count, 2)][-1].delay_s

    def tier_for_wait(self, wait_s: float) -> Tier:
        """The longest tier that fits into the wait; an event may need another, but is not late."""
        fitting = [tier for tier in self.tiers if tier.delay_s <= wait_s]
        return fitting[-1] if fitting else self.tiers[0]

    def due_at_ms(self, tier: str, stored_at_ms: int, *, not_before_ms: int) -> int:
        """When an event in a tier is due: after its delay, and not before `not_before_ms`."""
        delays_s = {each.name: each.delay_s for each in self.tiers}
        return max(stored_at_ms + round(1000 * delays_s.get(tier, 0.0)), not_before_ms)

    def tier_nearest(self, wait_s: float, *, below_s: float) -> Tier | None:
        """The tier that comes closest to the wait; None if none is shorter than `below_s`."""
        fitting = [tier for tier in self.tiers if tier.delay_s < below_s]
        return min(fitting, key=lambda tier: abs(tier.delay_s - wait_s), default=None)


def jittered(delay_s: float, *, roll: float) -> float:
    """Spread a delay upwards; `roll` is in [0, 1)."""
    return delay_s * (1 + JITTER_FRACTION * roll)
