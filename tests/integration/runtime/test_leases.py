"""Holders of slots, with a real Kafka: members come, leave, die and freeze; Kafka restarts."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest
from aiokafka.errors import IllegalGenerationError, UnknownMemberIdError

from deploy.local.cluster import Cluster
from shared.event.record import KafkaPartition
from shared.event.topics import fixed_specs
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from shared.runtime.kafka.leases.member import LeaseMember
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import SetupError
from tests.support.kafka.broker_faults import restart
from tests.support.kafka.lease_members import (
    SLOTS,
    MemberStep,
    NotedWork,
    child_member,
    deeds_of,
    member,
)

pytestmark = pytest.mark.integration

ALL = frozenset(range(SLOTS))
# Kafka's own minimum; and a session that outlasts any test.
SHORT_S, LONG_S = 6.0, 60.0
PATIENCE_S = 90.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - the members may be other processes
            await asyncio.sleep(0.02)


def assert_one_owner_at_a_time(deeds: list[MemberStep]) -> None:
    owner: dict[int, str] = {}
    for deed in sorted(deeds):
        for slot in deed.slots:
            if deed.what == "begin":
                assert slot not in owner, f"{deed.who} begins slot {slot} of {owner[slot]}"
                owner[slot] = deed.who
            elif deed.what in ("finished", "drop"):
                assert owner.pop(slot) == deed.who


def test_slots_move_in_order_and_what_stays_is_not_interrupted(kafka: Cluster) -> None:
    """Nobody waits for a session to end: that would take longer than the test may."""
    deeds: list[MemberStep] = []
    works = [NotedWork(name, deeds) for name in "abc"]
    servers, group = kafka.bootstrap_servers, "hifi.leases.moves"

    async def scenario() -> None:
        a, b, c = works
        async with AsyncExitStack() as stays, AsyncExitStack() as leaves:
            await stays.enter_async_context(member(servers, group, a, session_s=LONG_S))
            await until(lambda: a.owned == ALL)
            await stays.enter_async_context(member(servers, group, b, session_s=LONG_S))
            await until(lambda: len(b.owned) == SLOTS // 2)
            of_b = b.owned
            await leaves.enter_async_context(member(servers, group, c, session_s=LONG_S))
            await until(lambda: {len(w.owned) for w in works} == {5, 6})
            assert b.owned < of_b
            kept = b.owned
            await leaves.aclose()
            await until(lambda: a.owned | b.owned == ALL)
            assert len(a.owned) == len(b.owned)
            assert kept < b.owned
        assert not any(work.owned for work in works)

    asyncio.run(scenario())
    assert_one_owner_at_a_time(deeds)
    assert not [deed for deed in deeds if deed.what == "drop"]
    # 8 slots went to b, 2 or 3 of each member to c and later back; no other slot moved.
    begun = sum(len(deed.slots) for deed in deeds if deed.what == "begin")
    assert begun == SLOTS + 8 + 5 + 5


def test_what_does_not_come_to_its_end_is_dropped_and_moves_on(kafka: Cluster) -> None:
    deeds: list[MemberStep] = []
    slow, other = NotedWork("slow", deeds, drain_s=PATIENCE_S), NotedWork("other", deeds)
    servers, group = kafka.bootstrap_servers, "hifi.leases.slow"

    async def scenario() -> None:
        async with member(servers, group, slow, session_s=LONG_S, drain_s=0.2):
            await until(lambda: slow.owned == ALL)
            async with member(servers, group, other, session_s=LONG_S):
                await until(lambda: len(other.owned) == SLOTS // 2)

    asyncio.run(scenario())
    assert_one_owner_at_a_time(deeds)
    of_slow = dict.fromkeys(deed.what for deed in deeds if deed.who == "slow")
    assert list(of_slow)[:3] == ["begin", "finish", "drop"]


def test_one_slot_that_hangs_holds_up_no_other_even_of_who_leaves(kafka: Cluster) -> None:
    deeds: list[MemberStep] = []
    last = frozenset({SLOTS - 1})
    one, other = NotedWork("one", deeds, hangs=last), NotedWork("other", deeds)
    servers, group = kafka.bootstrap_servers, "hifi.leases.hangs"

    async def scenario() -> None:
        leaves = AsyncExitStack()
        await leaves.enter_async_context(
            member(servers, group, one, session_s=LONG_S, drain_s=PATIENCE_S)
        )
        await until(lambda: one.owned == ALL)
        async with member(servers, group, other, session_s=LONG_S):
            await until(lambda: len(other.owned) == SLOTS // 2 - 1)
            assert last < one.owned
            leaving = asyncio.create_task(leaves.aclose())
            await until(lambda: other.owned == ALL - last)
            assert one.owned == last
            one.let_go.set()
            await leaving
            await until(lambda: other.owned == ALL)

    asyncio.run(scenario())
    assert_one_owner_at_a_time(deeds)
    assert not [deed for deed in deeds if deed.what == "drop"]


def test_the_killed_and_the_frozen_are_taken_over_and_the_frozen_gives_up(
    kafka: Cluster, tmp_path: Path
) -> None:
    """Issue 15: a dead member's lanes run elsewhere within 60 s; a frozen one gives up its own."""
    deeds: list[MemberStep] = []
    work = NotedWork("a", deeds)
    servers, group = kafka.bootstrap_servers, "hifi.leases.deaths"
    killed_one, frozen_one = (
        child_member(name, servers, group, SHORT_S, tmp_path / f"{name}.log") for name in "kf"
    )

    def last(child_deeds: list[MemberStep]) -> str:
        return child_deeds[-1].what if child_deeds else ""

    async def scenario() -> None:
        # Unlike the two others, this process may be busy for as long as a short session lasts.
        async with member(servers, group, work, session_s=LONG_S):
            await until(lambda: len(work.owned) in {5, 6} and last(deeds_of(frozen_one)) == "begin")
            await until(lambda: last(deeds_of(killed_one)) == "begin")
            killed_one.kill()
            frozen_one.send(signal.SIGSTOP)
            before = len(deeds_of(frozen_one))
            async with asyncio.timeout(60):
                await until(lambda: work.owned == ALL)
            frozen_one.send(signal.SIGCONT)
            await until(lambda: len(deeds_of(frozen_one)) >= before + 2)
            came_back = deeds_of(frozen_one)[before:]
            assert [deed.what for deed in came_back[:2]] == ["drop", "begin"]
            await until(lambda: len(work.owned) == SLOTS // 2)

    try:
        asyncio.run(scenario())
    finally:
        killed_one.kill()
        frozen_one.kill()
    assert not [deed for deed in deeds if deed.what == "drop"]


def test_positions_are_taken_from_whoever_has_them_and_from_no_other(kafka: Cluster) -> None:
    """Issue 15: the commits of a frozen member are refused."""
    servers, group = kafka.bootstrap_servers, "hifi.leases.positions"
    spec = fixed_specs(["30s"])[0]
    where, beside = KafkaPartition(spec.name, 0), KafkaPartition(spec.name, 1)
    works = [NotedWork(name, []) for name in "ab"]

    async def scenario() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing([spec])
        positions = FencedPositions(servers, group)
        async with member(servers, group, works[0], session_s=LONG_S) as a:
            await until(lambda: works[0].owned == ALL)
            assert await positions.read() == {}
            await positions.write({where: Reach(3, 7, 12), beside: Reach(1, 1)}, lambda: a.standing)
            former, stranger = a.standing, a.standing._replace(member_id="stranger")
            # The member keeps the position while others come and go.
            writing = asyncio.create_task(keep_writing(positions, beside, a))
            async with member(servers, group, works[1], session_s=LONG_S):
                await until(lambda: len(works[1].owned) == SLOTS // 2)
                with pytest.raises(IllegalGenerationError):
                    await positions.write({where: Reach(2, 2)}, lambda: former)
                with pytest.raises(UnknownMemberIdError):
                    await positions.write({where: Reach(2, 2)}, lambda: stranger)
            with pytest.raises(UnknownMemberIdError):
                await positions.write({where: Reach(2, 2)}, lambda: None)
            writing.cancel()
            assert not writing.done()
        assert (await positions.read())[where] == Reach(3, 7, 12)
        await positions.close()

    asyncio.run(scenario())


async def keep_writing(positions: FencedPositions, where: KafkaPartition, of: LeaseMember) -> None:
    for number in count(2):
        await positions.write({where: Reach(number, number)}, lambda: of.standing)


@pytest.mark.long
def test_nobody_loses_anything_for_a_restart_of_kafka(tmp_path: Path, jars_cache: Path) -> None:
    deeds: list[MemberStep] = []
    works = [NotedWork(name, deeds) for name in "abc"]

    async def scenario(cluster: Cluster) -> None:
        a, b, c = works
        servers, group = cluster.bootstrap_servers, "hifi.leases.restart"
        async with AsyncExitStack() as stays:
            for work in (a, b):
                await stays.enter_async_context(member(servers, group, work, session_s=LONG_S))
            await until(lambda: len(a.owned) == len(b.owned) == SLOTS // 2)
            had, count = (a.owned, b.owned), len(deeds)
            cluster.child(1).kill()
            await asyncio.to_thread(restart, cluster, 1)
            assert (a.owned, b.owned) == had
            await stays.enter_async_context(member(servers, group, c, session_s=LONG_S))
            await until(lambda: {len(work.owned) for work in works} == {5, 6})
            assert a.owned < had[0]
            assert b.owned < had[1]
            assert {deed.what for deed in deeds[count:]} == {"finish", "finished", "begin"}

    with Cluster(folder=tmp_path / "kafka", cache=jars_cache) as cluster:
        asyncio.run(scenario(cluster))
    assert_one_owner_at_a_time(deeds)


def test_a_session_that_kafka_does_not_allow_is_one_sentence(kafka: Cluster) -> None:
    one = LeaseMember(
        kafka.bootstrap_servers, "hifi.leases.short", NotedWork("a", []), session_s=0.5
    )
    with pytest.raises(SetupError, match=r"a lease of 0\.5 s.*group\.min\.session\.timeout\.ms"):
        asyncio.run(one.run(asyncio.Event()))
