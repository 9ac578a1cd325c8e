"""The active observer's work ends the process when it fails, and never runs twice at a time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from observe.active import ActiveObserver
from shared.runtime.setup_error import SetupError

SLOT = frozenset([0])


def observer(
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[], Awaitable[object]],
    lease: Callable[[ActiveObserver], Awaitable[None]],
) -> ActiveObserver:
    """Return an observer whose lease a test controls."""
    active = ActiveObserver("no kafka", work, lease_s=20)

    async def run(_: asyncio.Event) -> None:
        await lease(active)

    monkeypatch.setattr(active._member, "run", run)
    return active


def test_what_the_work_dies_of_ends_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        raise SetupError("The file holds no key.")

    async def lease(active: ActiveObserver) -> None:
        active.begin(SLOT)
        await asyncio.Event().wait()

    async def scenario() -> None:
        await observer(monkeypatch, work, lease).run(asyncio.Event())

    with pytest.raises(SetupError, match="no key"):
        asyncio.run(scenario())


def test_what_was_dropped_ends_before_it_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    begun, closing, closed = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        said.append("begun")
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            closing.set()
            await closed.wait()
            said.append("closed")

    async def lease(active: ActiveObserver) -> None:
        active.begin(SLOT)
        await begun.acquire()
        active.drop(SLOT)
        active.begin(SLOT)
        await closing.wait()
        assert said == ["begun"]
        closed.set()
        await begun.acquire()
        await active.finish(SLOT)

    asyncio.run(_run(monkeypatch, work, lease))
    assert said == ["begun", "closed", "begun", "closed"]


async def _run(
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[], Awaitable[object]],
    lease: Callable[[ActiveObserver], Awaitable[None]],
) -> None:
    await observer(monkeypatch, work, lease).run(asyncio.Event())
