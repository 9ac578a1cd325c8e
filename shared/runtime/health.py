"""Answers /livez and /readyz: whether a process is alive, and whether it can do its work.

A process is alive while all its loops beat. If one is late, the process counts as dead, even if
other threads still answer. Outside trouble does not count, because a restart does not bring Kafka
back. A process is ready when it has started, has everything it needs, and is not stopping.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")

# Returns the problem in one sentence; None if there is none.
Reason: TypeAlias = Callable[[], str | None]

# A Spark driver starts within 20 s; beside eight others on two cores, one took 94 s.
_START_WITHIN_S = 300.0
# The longest piece of work blocks an event loop for about a second.
_LOOP_WITHIN_S, _LOOP_BEAT_S = 15.0, 1.0
# Failed side work often fails again at once, and its log line must not flood the log.
SIDE_WORK_AGAIN_S = 5.0


async def kept_up(work: Callable[[], Awaitable[object]], *, name: str) -> None:
    """Run side work until it ends or is cancelled; restart it after an error."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("side_work.failed", work=name, again_in_s=SIDE_WORK_AGAIN_S)
        else:
            return
        await asyncio.sleep(SIDE_WORK_AGAIN_S)


class Pulse:
    """The time of a loop's last turn."""

    def __init__(self) -> None:
        self._beat_s = monotonic()

    def beat(self) -> None:
        self._beat_s = monotonic()

    async def beat_during(self, work: Coroutine[Any, Any, T]) -> T:
        """Beat while work waits for others: a restarted process would have to wait, too."""
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
    """The health of one process. A separate thread asks for it, so a stuck loop is noticed."""

    def __init__(self) -> None:
        self.is_started = False
        self.is_stopping = False
        self._begun = Pulse()
        self._loops: list[tuple[str, Pulse, float]] = []
        self._needs: list[Reason] = []
        self._worries: list[Reason] = []

    def start(self) -> None:
        """Note that the process has started."""
        self.is_started = True

    def stop(self) -> None:
        """Note that the process is stopping."""
        self.is_stopping = True

    def must_turn(self, what: str, pulse: Pulse, *, within_s: float) -> None:
        """Watch a loop from now on: the process is alive only while the loop turns."""
        pulse.beat()
        self._loops.append((what, pulse, within_s))

    def may_rest(self, pulse: Pulse) -> None:
        """Stop watching a loop that has ended normally."""
        self._loops = [loop for loop in self._loops if loop[1] is not pulse]

    def needs(self, problem: Reason) -> None:
        """Add a problem: the process is ready only while there is none."""
        self._needs.append(problem)

    def worries(self, worry: Reason) -> None:
        """Add a warning for people, with which the process stays ready."""
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
        """The reason why the process should be killed and restarted."""
        if self.is_stopping:
            # Its loops end one by one, and its supervisor limits the time of a stop.
            return None
        if not self.is_started and self._begun.age_s > _START_WITHIN_S:
            return f"it has been starting for {self._begun.age_s:.0f} s"
        for what, pulse, within_s in self._loops:
            if pulse.age_s > within_s:
                return f"{what} has not turned for {pulse.age_s:.0f} s"
        return None

    @property
    def problem(self) -> str | None:
        """The reason why the process should get no work."""
        if self.is_stopping:
            return "it is stopping"
        return "it is starting" if not self.is_started else _first(self._needs)

    @property
    def worry(self) -> str | None:
        return _first(self._worries)

    @property
    def probes(self) -> Mapping[str, Callable[[], tuple[bool, str]]]:
        """The probes by path; each returns its result and a text."""
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
