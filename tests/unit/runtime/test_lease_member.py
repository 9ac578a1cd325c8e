"""A member's reports about its slots, without a Kafka; tests/integration/runtime has the rest."""

import asyncio

import pytest
from structlog.testing import capture_logs

from shared.runtime.clock import now_ms
from shared.runtime.kafka.leases import member
from shared.runtime.kafka.leases.member import LeaseMember
from shared.slots import SLOT_COUNT
from tests.support.kafka.lease_members import NotedWork

ALL = frozenset(range(SLOT_COUNT))


def test_what_is_held_is_told_in_ranges() -> None:
    """All 128 numbers at each change of the group would bury all other lines."""

    async def scenario() -> None:
        one = LeaseMember("kafka:1", "hifi.leases.s", NotedWork("a", [], drain_s=0.0))
        one._take(ALL, frozenset())
        one._take(ALL - {0, 5}, ALL)
        await asyncio.gather(*one._tasks)
        one._let_go("it was frozen")

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert [(each["event"], each["slots"]) for each in logs] == [
        ("lease.begun", "0-127"),
        ("lease.given_up", "0, 5"),
        ("lease.lost", "1-4, 6-127"),
    ]


def test_a_lease_ends_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's clock stands still meanwhile, and Kafka has given the slots to others."""

    async def scenario() -> None:
        one = LeaseMember("kafka:1", "hifi.leases.s", NotedWork("a", []), session_s=20.0)
        one._take(ALL, frozenset())
        sent_s = member.clock_s()
        monkeypatch.setattr(member, "clock_s", lambda: sent_s)
        one._is_known_alive(sent_s)
        assert 19_000 < one.ours_until_ms - now_ms() <= 20_000
        monkeypatch.setattr(member, "clock_s", lambda: sent_s + 60.0)
        assert one.ours_until_ms < now_ms() - 39_000
        one._let_go("it ends")

    asyncio.run(scenario())


def test_a_slot_that_hangs_is_held_by_itself_and_no_longer_than_the_drain() -> None:
    """Each other slot goes to its next owner as soon as its own work has ended."""

    async def scenario() -> None:
        work = NotedWork("a", [], drain_s=0.0, hangs=frozenset({5}))
        one = LeaseMember("kafka:1", "hifi.leases.s", work, drain_s=0.3)
        one._take(ALL, frozenset())
        one._take(ALL - {0, 5, 9}, ALL)
        async with asyncio.timeout(30):
            await asyncio.wait(one._tasks, return_when=asyncio.FIRST_COMPLETED)
            while len(one._tasks) > 1:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0)
            assert one.owned == ALL - {0, 9}
            assert one._must_join
            await asyncio.gather(*one._tasks)
        assert one.owned == ALL - {0, 5, 9}
        assert work.deeds[-1].what == "drop"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("before", "member_id", "generation", "waits"),
    [
        (7, "new", 8, False),
        (7, "ours", 7, False),
        (7, "ours", 8, False),
        (7, "new", 1, True),
        (7, "ours", 6, True),
        (1, "new", 1, True),
        (-1, "new", 1, False),
    ],
)
def test_who_finds_its_group_forgotten_takes_nothing_while_others_may_not_know(
    monkeypatch: pytest.MonkeyPatch, before: int, member_id: str, generation: int, *, waits: bool
) -> None:
    async def scenario() -> None:
        one = LeaseMember("kafka:1", "hifi.leases.s", NotedWork("a", []), session_s=0.05)
        now_s = member.clock_s()
        monkeypatch.setattr(member, "clock_s", lambda: now_s)
        one._standing = one._standing._replace(member_id="ours", generation=before)
        one._heed_generation(member_id, generation)
        one._take(ALL, frozenset())
        assert one.owned == (frozenset() if waits else ALL)
        if waits:
            async with asyncio.timeout(30):
                await one._news.wait()
            assert one._must_join
            now_s += 0.05
            one._take(ALL, frozenset())
        assert one.owned == ALL
        one._let_go("it ends")

    asyncio.run(scenario())
