"""Names everything that can happen in a chaos run, and holds its plan."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tests.support.neighbours.kinds import KINDS as WORST_KINDS

# Trouble comes in rounds; after each one everything is healed and the books are recounted.
ROUND_S = 40.0

# How a destination can misbehave, instead of answering 200.
MOODS = (
    "throttle",
    "unavailable",
    "unauthorized",
    "redirect",
    "gone",
    "hang",
    "reset_before",
    "reset_after",
    "partial_207",
    "cut_207",
    "packed_207",
    "long_207",
    "slow_body",
    "garbage",
    "limit",
    "refuse_some",
    "refuse_slowly",
)
FAULTS = (
    "kill gateway",
    "kill gateway-worker",
    "kill delivery",
    "kill delivery-worker",
    "kill retrier",
    "kill observe",
    "kill broker",
    "freeze gateway",
    "freeze delivery",
    "freeze retrier",
    "freeze observe",
    "freeze broker",
    "fill scratch",
    "step clock",
    "skew delivery",
    "skew retrier",
)
# Faults for three brokers; during each of them, another broker is paused or cut off.
FAULTS_OF_THREE = ("move leaders", "roll brokers", "cut broker")
# An operator does this once a broker is back, as its leaders are elsewhere by then.
AFTERMATH = "elect leaders"
# A tenant at its worst, which is not one of the customers.
WORST = tuple(f"worst {kind}" for kind in WORST_KINDS)
LASTING = frozenset({*FAULTS, *FAULTS_OF_THREE, AFTERMATH, *WORST})
CHANGES = (
    "make tenant",
    "change tenant",
    "remove tenant",
    "rotate key",
    "make stream",
    "change stream",
    "remove stream",
    "remake stream",
    "renew stream",
    "take freed stream",
    "make destination",
    "make late destination",
    "make picky destination",
    "change destination",
    "pause destination",
    "resume destination",
    "remove destination",
    "remake destination",
    "redrive",
)
KINDS = (
    *(f"mood {mood}" for mood in MOODS),
    *FAULTS,
    *FAULTS_OF_THREE,
    AFTERMATH,
    *CHANGES,
    *WORST,
)

Brokers: TypeAlias = Literal[1, 3]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do `at_s` seconds into its round, undone after `for_s`."""

    at_s: float
    kind: str
    tenant: str = ""
    stream: str = ""
    name: str = ""
    for_s: float = 0.0
    settings: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        where = "/".join(part for part in (self.tenant, self.stream, self.name) if part)
        lasts = f" for {self.for_s:.1f} s" if self.for_s else ""
        with_ = " ".join(f"{name}={value}" for name, value in self.settings)
        return f"{self.at_s:5.1f} s  {self.kind} {where}{lasts} {with_}".rstrip()


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    seed: int
    brokers: Brokers
    # Done before anybody sends.
    beginning: tuple[Action, ...]
    rounds: tuple[tuple[Action, ...], ...]

    @property
    def actions(self) -> list[Action]:
        return [*self.beginning, *(action for each in self.rounds for action in each)]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.brokers} broker(s)", "beginning"]
        lines += [f"  {action}" for action in self.beginning]
        for number, actions in enumerate(self.rounds, start=1):
            lines += [f"round {number}", *(f"  {action}" for action in actions)]
        return "\n".join(lines)
