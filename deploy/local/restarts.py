"""Says when to restart a dead service: at once, or after growing delays if it dies too often."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.runtime.files.service_deaths import MEMORY_MS, ServiceDeath

# A process that dies occasionally is restarted at once. One that dies more often than this in ten
# minutes probably dies again, and each start takes processor time from all others.
_AT_ONCE_MAX = 3
_FIRST_MS, _MOST_MS = 5_000, 60_000


@dataclass(slots=True)
class Restarts:
    """The deaths of some processes, by name."""

    _last: dict[str, ServiceDeath] = field(default_factory=dict)
    _died_ms: dict[str, list[int]] = field(default_factory=dict)
    _down: set[str] = field(default_factory=set)

    def died(self, name: str, how: str, last_words: str, *, now_ms: int) -> ServiceDeath:
        """Record that a process died or could not be started; return the death."""
        died_ms = [at_ms for at_ms in self._died_ms.get(name, []) if now_ms - at_ms < MEMORY_MS]
        self._died_ms[name] = died_ms = [*died_ms, now_ms]
        more = len(died_ms) - _AT_ONCE_MAX
        pause_ms = min(_MOST_MS, _FIRST_MS << more - 1) if more > 0 else 0
        self._down.add(name)
        death = ServiceDeath(name, how, last_words, len(died_ms), now_ms + pause_ms)
        self._last[name] = death
        return death

    def is_down(self, name: str) -> bool:
        return name in self._down

    def is_due(self, name: str, *, now_ms: int) -> bool:
        death = self._last.get(name)
        return name in self._down and (death is None or now_ms >= death.again_at_ms)

    def started(self, name: str) -> None:
        self._down.discard(name)

    def forgive(self) -> None:
        """Forget all deaths so far: they were intended."""
        self._died_ms.clear()
        self._last.clear()

    def again_and_again(self, *, now_ms: int) -> Sequence[ServiceDeath]:
        """Return the latest deaths of services that die too often and have not recovered since."""
        deaths = self._last.values()
        return [
            death for death in deaths if death.count > _AT_ONCE_MAX and death.is_news(now_ms=now_ms)
        ]
