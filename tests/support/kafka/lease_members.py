"""Members of a group of leases: in this process, or in one that can be frozen and killed."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from deploy.local.children import Child
from shared.runtime.kafka.leases.member import LeaseMember

SLOTS = 16
_REPO = Path(__file__).parents[3]


class MemberStep(NamedTuple):
    """A step of a member for some slots, and its time by the clock that all processes share."""

    at_s: float
    who: str
    what: str
    slots: frozenset[int]


@dataclass
class NotedWork:
    """Work that takes a moment to end."""

    who: str
    deeds: list[MemberStep]
    drain_s: float = 0.02
    owned: frozenset[int] = frozenset()
    # Slots whose work ends only when `let_go` is set.
    hangs: frozenset[int] = frozenset()
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, slots: frozenset[int]) -> None:
        self.owned |= slots
        self._note("begin", slots)

    async def finish(self, slots: frozenset[int]) -> None:
        self._note("finish", slots)
        await asyncio.sleep(self.drain_s)
        if slots & self.hangs:
            await self.let_go.wait()
        self.owned -= slots
        self._note("finished", slots)

    def drop(self, slots: frozenset[int]) -> None:
        self.owned -= slots
        self._note("drop", slots)

    def _note(self, what: str, slots: frozenset[int]) -> None:
        self.deeds.append(MemberStep(time.monotonic(), self.who, what, slots))


@asynccontextmanager
async def member(
    kafka: str, group: str, work: NotedWork, **options: Any
) -> AsyncIterator[LeaseMember]:
    """Run a member that leaves in order when the block ends."""
    one = LeaseMember(kafka, group, work, slot_count=SLOTS, **options)
    stop = asyncio.Event()
    running = asyncio.create_task(one.run(stop))
    try:
        yield one
    finally:
        stop.set()
        await running


def child_member(name: str, kafka: str, group: str, session_s: float, log: Path) -> Child:
    """Start a member in a process of its own, which writes its steps to its log."""
    argv = [sys.executable, __file__, name, kafka, group, str(session_s)]
    return Child(name, argv, log=log, env={"PYTHONPATH": str(_REPO)})


def deeds_of(child: Child) -> list[MemberStep]:
    """Return the steps that a process has printed so far."""
    lines = child.log.read_text().splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("[")]
    return [MemberStep(at_s, who, what, frozenset(slots)) for at_s, who, what, slots in rows]


class _ToldWork(NotedWork):
    def _note(self, what: str, slots: frozenset[int]) -> None:
        sys.stdout.write(json.dumps([time.monotonic(), self.who, what, sorted(slots)]) + "\n")
        sys.stdout.flush()


async def _main(name: str, kafka: str, group: str, session_s: str) -> None:
    one = LeaseMember(
        kafka, group, _ToldWork(name, []), slot_count=SLOTS, session_s=float(session_s)
    )
    await one.run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
