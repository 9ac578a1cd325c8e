"""Says whether a process lives and can do its work: the answers of its /livez and /readyz.

A process is alive while it makes progress: its loops beat, and one that is late is a death,
whatever threads still answer. Nothing outside counts there: a restart brings no Kafka back. A
process is ready when it has started, has everything it needs, and is not stopping.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")

# Why not, in one sentence; None while all is well.
Reason: TypeAlias = Callable[[], str | None]

# A Spark driver is up within 20 s, and took 94 s beside eight others on two cores.
_START_WITHIN_S = 300.0
# The longest that one piece of work holds an event loop is about a second.
_LOOP_WITHIN_S, _LOOP_BEAT_S = 15.0, 1.0
# Side work that failed once often fails again at once; nobody reads its log line again and again.
SIDE_WORK_AGAIN_S = 5.0


async def kept_up(work: Callable[[], Awaitable[object]], *, name: str) -> None:
    """Do side work until it ends by itself or is cancelled; after an error begin it again."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("side_work.failed", work=name, again_in_s=SIDE_WORK_AGAIN_S)
        else:
            return
        await asyncio.sleep(SIDE_WORK_AGAIN_S)


class Pulse:
    """When a loop last turned."""

    def __init__(self) -> None:
        self._beat_s = monotonic()

    def beat(self) -> None:
        self._beat_s = monotonic()

    async def beat_during(self, work: Coroutine[Any, Any, T]) -> T:
        """Beat while some work waits for others: a new process would wait, too."""
        working = asyncio.create_task(work)
        try:
            while not working.done():
                self.beat()
                await asyncio.wait([working], timeout=_LOOP_BEAT_S)
        finally:
            working.cancel()
        return working.result()

    @property
    def age_s(self) -> float:
        return monotonic() - self._beat_s


class Health:
    """The health of one process. A thread of its own asks, so that a stuck loop shows."""

    def __init__(self) -> None:
        self.is_started = False
        self.is_stopping = False
        self._begun = Pulse()
        self._loops: list[tuple[str, Pulse, float]] = []
        self._needs: list[Reason] = []
        self._worries: list[Reason] = []

    def start(self) -> None:
        """Note that the process has come to its work."""
        self.is_started = True

    def stop(self) -> None:
        """Note that the process is stopping."""
        self.is_stopping = True

    def must_turn(self, what: str, pulse: Pulse, *, within_s: float) -> None:
        """Let the process be alive only while this loop turns, from now on."""
        pulse.beat()
        self._loops.append((what, pulse, within_s))

    def may_rest(self, pulse: Pulse) -> None:
        """Stop watching a loop that has ended, as it should."""
        self._loops = [loop for loop in self._loops if loop[1] is not pulse]

    def needs(self, problem: Reason) -> None:
        """Let the process be ready only while there is no such problem."""
        self._needs.append(problem)

    def worries(self, worry: Reason) -> None:
        """Add a warning for people, which is no reason to take this process out."""
        self._worries.append(worry)

    async def beat(self) -> None:
        """Show that the event loop turns, until cancelled."""
        pulse = Pulse()
        self.must_turn("the event loop", pulse, within_s=_LOOP_WITHIN_S)
        while True:
            pulse.beat()
            await asyncio.sleep(_LOOP_BEAT_S)

    @property
    def death(self) -> str | None:
        """Why the process should be killed and started again."""
        if self.is_stopping:
            # Its loops end one by one, and its supervisor knows how long a stop may take.
            return None
        if not self.is_started and self._begun.age_s > _START_WITHIN_S:
            return f"it has not come to its work for {self._begun.age_s:.0f} s"
        for what, pulse, within_s in self._loops:
            if pulse.age_s > within_s:
                return f"{what} has not turned for {pulse.age_s:.0f} s"
        return None

    @property
    def problem(self) -> str | None:
        """Why no work should be sent here."""
        if self.is_stopping:
            return "it is stopping"
        return "it is starting" if not self.is_started else _first(self._needs)

    @property
    def worry(self) -> str | None:
        return _first(self._worries)

    @property
    def probes(self) -> Mapping[str, Callable[[], tuple[bool, str]]]:
        """The probes by path; each returns whether it passes, and a text."""
        return {"/livez": self._live, "/readyz": self._ready}

    def _live(self) -> tuple[bool, str]:
        death = self.death
        return (True, "alive\n") if death is None else (False, f"{death}\n")

    def _ready(self) -> tuple[bool, str]:
        problem, worry = self.problem, self.worry
        if problem is not None:
            return False, f"{problem}\n"
        return True, "ready\n" if worry is None else f"ready, but {worry}\n"


def _first(reasons: list[Reason]) -> str | None:
    return next((text for reason in reasons if (text := reason()) is not None), None)
