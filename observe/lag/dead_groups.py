"""Groups a destination's dead letters by reason and answer, and counts each group over time.

A destination has at most _GROUPS_MAX groups, and one more for all further answers. Only its books
know how many events of a group are still dead, as the books know which events were sent again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.proof.last_answer import (
    DEAD_STEP_MS,
    DEAD_STEPS,
    DeadGroup,
    answer_of,
    is_answer,
)
from shared.proof.receipt import Receipt

_GROUPS_MAX = 20
_OTHERS = "others"


@dataclass(slots=True)
class _GroupCount:
    reason: str
    answer: str
    first_ms: int
    last_ms: int
    given_up: dict[int, int] = field(default_factory=dict)

    def add(self, count: int, at_ms: int) -> None:
        self.first_ms = min(self.first_ms, at_ms)
        self.last_ms = max(self.last_ms, at_ms)
        step_ms = at_ms - at_ms % DEAD_STEP_MS
        self.given_up[step_ms] = self.given_up.get(step_ms, 0) + count
        while len(self.given_up) > DEAD_STEPS:
            del self.given_up[min(self.given_up)]


@dataclass(slots=True)
class DeadGroups:
    """The groups of one destination, by the names that its books use."""

    _groups: dict[str, _GroupCount] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def enter(self, receipt: Receipt) -> str:
        """Count the dead events of a receipt, and return the name of their group."""
        reason, answer = receipt.reason, _answer_of(receipt)
        name = self._name_of(reason, answer)
        if name == _OTHERS:
            reason = answer = ""
        at_ms = receipt.ended_at_ms
        group = self._groups.setdefault(name, _GroupCount(reason, answer, at_ms, at_ms))
        group.add(receipt.event_count, at_ms)
        return name

    def read(self, counts: Mapping[str, int]) -> tuple[DeadGroup, ...]:
        """Return the groups that still have dead events, with their number; drop the others."""
        self._groups = {name: of for name, of in self._groups.items() if counts.get(name)}
        return tuple(
            DeadGroup(
                of.reason, of.answer, counts[name], of.first_ms, of.last_ms, dict(of.given_up)
            )
            for name, of in self._groups.items()
        )

    def _name_of(self, reason: str, answer: str) -> str:
        for name, group in self._groups.items():
            if group.reason == reason and is_answer(group.answer, answer):
                return name
        free = (str(number) for number in range(_GROUPS_MAX))
        return next((name for name in free if name not in self._groups), _OTHERS)


def _answer_of(receipt: Receipt) -> str:
    """Return the answer to the last request if it made the events dead letters; else empty."""
    if not receipt.failed_tries:
        return ""
    last = receipt.failed_tries[-1]
    if receipt.reason.startswith("status_") and last.reason != receipt.reason:
        # Each event of a partly accepted batch has its own status.
        return ""
    return answer_of(receipt.reason, last.reason, last.text)
