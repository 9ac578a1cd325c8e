"""A tenant's searches wait for one another, and another tenant's comes next."""

import asyncio

import pytest

from observe.console import search_turns
from observe.console.search_turns import ViewersTurns
from shared.runtime.setup_error import NoAnswerError


def test_whoever_searches_much_waits_behind_those_who_search_little() -> None:
    async def scenario() -> list[str]:
        turns, log, done = ViewersTurns(), asyncio.Lock(), list[str]()

        async def search(tenant: str) -> None:
            async with turns.of(tenant), log:
                await asyncio.sleep(0.001)
                done.append(tenant)

        async with asyncio.TaskGroup() as group:
            for tenant in ("acme",) * 20 + ("globex",):
                group.create_task(search(tenant))
        return done

    done = asyncio.run(scenario())
    assert done.count("acme") == 20
    # Without turns it would be the last one.
    assert done.index("globex") == 1


def test_a_turn_that_does_not_come_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_turns, "_WAIT_S", 0.01)

    async def scenario() -> None:
        turns = ViewersTurns()
        async with turns.of("acme"):
            async with turns.of("globex"):
                pass
            with pytest.raises(NoAnswerError, match="Other searches of yours are under way"):
                async with turns.of("acme"):
                    raise AssertionError
        async with turns.of("acme"):
            pass

    asyncio.run(scenario())
