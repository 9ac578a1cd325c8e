"""Draws the faults of a soak from its seed: one per period, every kind equally often.

The same seed makes the same plan.
"""

import random
from dataclasses import dataclass

# Each fault, with its shortest and longest duration. A worker is replaced at once; others stay
# down, frozen or slow for the whole duration. Kafka fences a broker that is frozen for longer than
# its session timeout: 9 s by default, 3 s in the embedded stack.
_LASTS_S = {
    "kill gateway": (0.5, 3.0),
    "kill delivery": (0.5, 5.0),
    "kill delivery-worker": (0.0, 0.0),
    "kill retrier": (0.5, 5.0),
    "kill observe": (0.5, 5.0),
    "kill broker": (0.5, 3.0),
    "freeze gateway": (1.0, 5.0),
    "freeze delivery": (1.0, 8.0),
    "freeze retrier": (1.0, 8.0),
    "freeze broker": (1.0, 6.0),
    "slow destination": (5.0, 15.0),
}
KINDS = tuple(_LASTS_S)
# Time without faults: the beginning shows the normal state, and at the end everything settles.
QUIET_S = 30.0


@dataclass(frozen=True, slots=True)
class PlannedFault:
    at_s: float
    kind: str
    for_s: float


def fault_plan(seed: int, *, duration_s: float, every_s: float) -> tuple[PlannedFault, ...]:
    """Plan faults `every_s` seconds apart on average; no two at once."""
    dice = random.Random(f"soak {seed}")  # noqa: S311 - to be repeated
    count = int((duration_s - 2 * QUIET_S) / every_s)
    kinds: list[str] = []
    while len(kinds) < count:
        # Each kind comes once before any comes again, so twenty faults include every kind.
        kinds += dice.sample(KINDS, len(KINDS))
    faults = []
    for index, kind in enumerate(kinds[:count]):
        for_s = round(min(dice.uniform(*_LASTS_S[kind]), every_s / 3), 1)
        # In the first half of its period, so that the other half is time to recover.
        at_s = QUIET_S + every_s * (index + dice.random() / 2)
        faults.append(PlannedFault(round(at_s, 1), kind, for_s))
    return tuple(faults)
