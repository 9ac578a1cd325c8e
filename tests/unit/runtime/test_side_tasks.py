"""Side work of a process starts again after an error, and ends no process."""

import asyncio

import pytest

from shared.runtime import health
from shared.runtime.health import kept_up


def test_work_that_fails_is_begun_again_and_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "SIDE_WORK_AGAIN_S", 0.0)
    fails = [ValueError("min() of nothing"), KeyError("details"), OSError("no room")]
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if fails:
            raise fails.pop()

    async def main() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(kept_up(work, name="copies"))
            return "the other tasks continued"

    assert asyncio.run(main()) == "the other tasks continued"
    assert begun == 4


def test_it_ends_when_it_is_cancelled() -> None:
    async def main() -> None:
        task = asyncio.create_task(kept_up(asyncio.Event().wait, name="ever"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
