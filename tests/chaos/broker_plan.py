"""Plans faults of three brokers: which one fails, how long, and which other one is frozen then."""

from random import Random
from typing import Any

_BROKERS = (1, 2, 3)
# How long a follower is frozen: from too short for anybody to notice it, to over twice that limit.
_PAUSE_S = (0.5, 7.0)
# The maximum of all pauses of a fault together.
_PAUSES_S = 12.0
# Restarting three brokers takes longer; a round waits until it is done.
_ROLL_S = 12.0


def planned(fault: str, dice: Random, *, outage_s: float) -> dict[str, Any]:
    """Return how long a fault lasts, and its settings."""
    match fault:
        case "cut broker":
            return {"for_s": outage_s, "broker": dice.choice(_BROKERS)}
        case "roll brokers":
            return {"for_s": _ROLL_S, "steps": _steps(dice)}
        case _:
            pauses = _pauses(dice, 2 if fault == "move leaders" else 1)
            return {"for_s": sum(pause_s for _, pause_s, _ in pauses), "pauses": pauses}


def _steps(dice: Random) -> tuple[tuple[int, int, float], ...]:
    """Return for each broker, in order of restart, another that is frozen, and for how long."""
    steps = []
    for broker in dice.sample(_BROKERS, 3):
        paused = dice.choice([one for one in _BROKERS if one != broker])
        steps.append((broker, paused, round(dice.uniform(*_PAUSE_S), 1)))
    return tuple(steps)


def _pauses(dice: Random, count: int) -> tuple[tuple[int, float, float], ...]:
    """Return for each pause the frozen broker, for how long, and when leaders move meanwhile."""
    pauses, left_s = [], _PAUSES_S
    for broker in dice.sample(_BROKERS, count):
        least_s, most_s = _PAUSE_S
        pause_s = round(dice.uniform(least_s, min(most_s, left_s)), 1)
        left_s -= pause_s
        pauses.append((broker, pause_s, round(pause_s * dice.uniform(0.2, 0.8), 1)))
    return tuple(pauses)
