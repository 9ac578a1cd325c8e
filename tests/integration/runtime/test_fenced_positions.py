"""Positions count while their lanes are held, and not after: a real Kafka refuses them."""

import asyncio
from collections.abc import Callable

import pytest

from deploy.local.cluster import Cluster
from shared.event.record import KafkaPartition
from shared.event.topics import fixed_specs, stream_spec
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, NotOwnerError
from shared.runtime.kafka.leases.member import LeaseMember, Standing
from shared.runtime.kafka.topic_admin import topic_admin
from shared.slots import slot_of
from tests.support.lease_members import SLOTS, NotedWork, member

pytestmark = pytest.mark.integration

SESSION_S = 60.0
PATIENCE_S = 60.0


PLACES = [KafkaPartition("hifi.stream.fenced", number) for number in range(2)]


class Belated(LeaseMember):
    """One that was frozen after it had looked whether a lane is still its own."""

    def holds(self, _: str) -> bool:
        return True

    def stood_as(self, standing: Standing) -> None:
        self._standing = standing


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - who holds what is told to nobody
            await asyncio.sleep(0.02)


@pytest.fixture
def lanes(kafka: Cluster) -> list[str]:
    """One for each slot; what they are positions in exists."""

    async def create() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing([stream_spec("fenced"), *fixed_specs(["30s"])])

    asyncio.run(create())
    by_slot = {slot_of(f"fenced/{n}", SLOTS): f"fenced/{n}" for n in range(500)}
    return [by_slot[slot] for slot in range(SLOTS)]


def at(offset: int) -> dict[KafkaPartition, int]:
    return dict.fromkeys(PLACES, offset)


def test_only_who_holds_a_lane_commits_its_position(kafka: Cluster, lanes: list[str]) -> None:
    """Issue 15: a frozen owner comes back, and its commits are refused."""
    servers, group = kafka.bootstrap_servers, "hifi.leases.fenced"
    work, other = NotedWork("a", []), NotedWork("b", [])

    async def scenario() -> None:
        async with LaneGroups(servers) as seen:
            async with (
                member(servers, group, work, session_s=SESSION_S) as owner,
                FencedPositions(servers, owner) as positions,
            ):
                await until(lambda: len(work.held) == SLOTS)
                await positions.commit({lane: at(5) for lane in lanes})
                assert await positions.position(lanes[3], PLACES) == at(5)
                # So do ordinary lag tools.
                assert await seen.position(lanes[3]) == at(5)
                belated = Belated(servers, group, NotedWork("frozen", []))
                belated.stood_as(owner.standing)
            async with (
                member(servers, group, other, session_s=SESSION_S) as owner,
                FencedPositions(servers, owner) as positions,
                FencedPositions(servers, belated) as late,
            ):
                await until(lambda: len(other.held) == SLOTS)
                await positions.commit({lanes[0]: at(7)})
                with pytest.raises(NotOwnerError):
                    await late.commit({lane: at(6) for lane in lanes})
                assert await positions.position(lanes[0], PLACES) == at(7)
                assert await positions.position(lanes[1], PLACES) == at(5)
                # What it began is over, so nobody waits for it; and ours go on.
                await positions.commit({lanes[1]: at(8)})
                assert await positions.position(lanes[1], PLACES) == at(8)
        # Kafka does not even have to be asked.
        with pytest.raises(NotOwnerError, match=lanes[2]):
            await FencedPositions(servers, owner).commit({lanes[2]: at(9)})

    asyncio.run(scenario())


def test_a_deleted_stream_does_not_hold_up_the_positions_of_others(
    kafka: Cluster, lanes: list[str]
) -> None:
    servers, group = kafka.bootstrap_servers, "hifi.leases.gone"
    work = NotedWork("a", [])
    gone = {KafkaPartition("hifi.stream.gone", 0): 3}

    async def scenario() -> None:
        async with (
            member(servers, group, work, session_s=SESSION_S) as owner,
            FencedPositions(servers, owner) as positions,
        ):
            await until(lambda: len(work.held) == SLOTS)
            await positions.commit({"gone/to": gone, lanes[5]: at(4)})
            assert await positions.position(lanes[5], PLACES) == at(4)

    asyncio.run(scenario())


def test_who_takes_over_waits_for_what_the_last_owner_has_begun(
    kafka: Cluster, lanes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, group = kafka.bootstrap_servers, "hifi.leases.begun"
    work = NotedWork("a", [])

    async def scenario() -> None:
        async with (
            member(servers, group, work, session_s=SESSION_S) as owner,
            FencedPositions(servers, owner) as positions,
            FencedPositions(servers, owner) as next_owner,
        ):
            await until(lambda: len(work.held) == SLOTS)
            await positions.commit({lanes[0]: at(1)})
            allowed, thawed = asyncio.Event(), asyncio.Event()
            end = positions._end

            async def end_later(producer: tuple[int, int], *, is_valid: bool) -> None:
                allowed.set()
                await thawed.wait()
                await end(producer, is_valid=is_valid)

            monkeypatch.setattr(positions, "_end", end_later)
            committing = asyncio.create_task(positions.commit({lanes[0]: at(2)}))
            await allowed.wait()
            asking = asyncio.create_task(next_owner.position(lanes[0], PLACES))
            # Of another lane it is told meanwhile.
            assert await next_owner.position("fenced/never", PLACES) == {}
            assert not asking.done()
            thawed.set()
            await committing
            assert await asking == at(2)

    asyncio.run(scenario())


def test_who_stays_commits_while_others_come_and_go(kafka: Cluster, lanes: list[str]) -> None:
    servers, group = kafka.bootstrap_servers, "hifi.leases.busy"
    work, other = NotedWork("a", []), NotedWork("b", [])

    async def scenario() -> None:
        async with (
            member(servers, group, work, session_s=SESSION_S) as owner,
            FencedPositions(servers, owner) as positions,
        ):
            await until(lambda: len(work.held) == SLOTS)
            over, count = asyncio.Event(), 0

            async def commit_on() -> None:
                nonlocal count
                while not over.is_set():
                    count += 1
                    await positions.commit({lanes[0]: at(count)})

            committing = asyncio.create_task(commit_on())
            for _ in range(3):
                async with member(servers, group, other, session_s=SESSION_S):
                    await until(lambda: len(other.held) == SLOTS // 2)
                await until(lambda: len(work.held) == SLOTS)
            over.set()
            await committing
            assert await positions.position(lanes[0], PLACES) == at(count)

    asyncio.run(scenario())
