"""A tenant's work waits for its own earlier work, and another tenant's comes next."""

import asyncio

import pytest

from shared.runtime.setup_error import NoAnswerError
from shared.runtime.tenant_turns import TenantTurns


def order_of(turns: TenantTurns, *tenants: str) -> list[str]:
    """Return the order of turns when tenants ask in this order."""

    async def scenario() -> list[str]:
        done: list[str] = []

        async def work(tenant: str) -> None:
            async with turns.of(tenant):
                await asyncio.sleep(0.001)
                done.append(tenant)

        async with asyncio.TaskGroup() as group:
            for tenant in tenants:
                group.create_task(work(tenant))
        return done

    return asyncio.run(scenario())


def test_a_tenant_with_much_to_do_leaves_every_other_turn_to_another() -> None:
    done = order_of(TenantTurns(1), *["acme"] * 20, *["globex"] * 3)
    assert done[1:7] == ["acme", "globex"] * 3
    assert (done.count("acme"), done.count("globex")) == (20, 3)


def test_the_tenant_that_holds_fewest_is_next_and_none_has_more_than_its_part() -> None:
    async def scenario() -> None:
        turns, begun = TenantTurns(4, of_a_tenant=2), list[str]()
        ends = asyncio.Event()

        async def work(tenant: str) -> None:
            async with turns.of(tenant):
                begun.append(tenant)
                await ends.wait()

        working = [asyncio.create_task(work(each)) for each in "aaaabcb"]
        await asyncio.sleep(0.01)
        # A third turn for `a` would exceed its part, though it was asked for first.
        assert sorted(begun) == ["a", "a", "b", "c"]
        # The turn of `c` ends.
        working[5].cancel()
        await asyncio.sleep(0.01)
        assert sorted(begun) == ["a", "a", "b", "b", "c"]
        ends.set()
        await asyncio.gather(*working, return_exceptions=True)
        assert len(begun) == 7

    asyncio.run(scenario())


def test_a_turn_that_does_not_come_is_refused_and_costs_nobody_another() -> None:
    async def scenario() -> None:
        refusal = NoAnswerError("Other searches of yours are under way.")
        turns = TenantTurns(2, within_s=0.01, refusal=lambda: refusal)
        async with turns.of("acme"):
            async with turns.of("globex"):
                pass
            with pytest.raises(NoAnswerError, match="Other searches of yours are under way"):
                async with turns.of("acme"):
                    raise AssertionError
        async with turns.of("acme"), turns.of("globex"):
            pass

    asyncio.run(scenario())


def test_whoever_leaves_while_waiting_or_in_the_moment_of_its_turn_holds_none() -> None:
    async def scenario() -> None:
        turns = TenantTurns(1)
        await turns.take("acme")
        waiting = [asyncio.create_task(turns.take(each)) for each in ("globex", "initech")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        turns.give_back("acme")
        # The turn has come, and its task has not been told yet.
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with asyncio.timeout(5):
            await turns.take("acme")

    asyncio.run(scenario())
