"""When a retrier starts to work on its share, and by whose lease."""

import asyncio

from retrier.broker import BrokerTime
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.leases.member import clock_s
from tests.support.delivery.memory_retrier import A, B, memory_retrier


def test_a_kafka_partition_without_a_leader_does_not_keep_the_others_from_being_started() -> None:
    """If a process does not start within 5 minutes, its restart interrupts all that it sends."""

    async def scenario() -> None:
        hifi, health, stop = memory_retrier(), Health(), asyncio.Event()
        hifi.tiers.leaderless.add(B)
        hifi.member.owned, hifi.member.is_told = frozenset({0, 1}), True
        hifi.begin(hifi.member.owned)
        hifi.fill(3, A)
        running = asyncio.create_task(hifi.run(stop, health, Pulse()))
        async with asyncio.timeout(10):
            while hifi.at != {A: 3} or not health.is_started:  # noqa: ASYNC110 - of two things
                await asyncio.sleep(0.01)
        stop.set()
        await running

    asyncio.run(scenario())


def test_what_goes_to_another_while_the_time_is_asked_for_is_not_begun_by_a_newer_lease() -> None:
    async def scenario() -> None:
        hifi = memory_retrier()
        await hifi.begin_with(0, 1)
        hifi.fill(4, A)
        await hifi._look()
        hifi.member._lapses_s = clock_s() + 0.1
        clock = hifi.broker.clock

        async def late() -> BrokerTime:
            hifi.drop(frozenset({0}))
            await asyncio.sleep(0.2)
            # All leases were lost; now 1 is ours again, and another process has 0.
            hifi.member.owned, hifi.member._lapses_s = frozenset({1}), clock_s() + 20
            return await clock()

        hifi.broker.clock = late  # type: ignore[method-assign]
        hifi._start_jobs()
        await asyncio.wait(hifi._jobs.values())
        now_ms = (await clock())()
        assert all(job.plan.ours_until_ms < now_ms for job in hifi.jobs)

    asyncio.run(scenario())
