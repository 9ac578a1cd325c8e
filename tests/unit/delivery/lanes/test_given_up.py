"""A lane that leaves reports its position before another process has it, and never later."""

import asyncio
from typing import Self

import pytest

from delivery.lanes.marks import Mark
from shared.event.record import Position
from shared.runtime.clock import now_ms
from shared.runtime.kafka import lane_positions
from shared.runtime.kafka.leases.member import clock_s
from tests.unit.delivery.lanes.test_loop import BESIDE, HERE, TO, A, Driver


class Groups:
    """A fake of the place where Kafka keeps the positions of lanes."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def commit(self, lane: str, position: Position) -> None:
        self.told[lane] = position[A]


@pytest.mark.parametrize("is_cut", [False, True])
def test_who_gives_a_lane_up_tells_where_it_is_before_and_never_afterwards(
    monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    groups = Groups()
    monkeypatch.setattr(lane_positions, "LaneGroups", lambda _: groups)
    driver = Driver(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    loop, slots = driver.loop, frozenset({driver.loop.member.slot_of(TO.id)})
    driver.look()
    loop._mark_came(HERE, Mark(4, 4))
    driver.spans()

    async def goes() -> None:
        if is_cut:
            loop.drop(slots)
        else:
            loop._mark_came(HERE, Mark(9, 9))
            await loop.finish(slots)
        loop.member.owned -= slots

    asyncio.run(goes())
    assert groups.told == ({} if is_cut else {TO.id: 9})
    # The new owner has reported a later position; late reports about work started here arrive.
    groups.told[TO.id] = 20
    loop._tell_position(TO.id)
    asyncio.run(loop.positions.tell_last())
    assert groups.told == {TO.id: 20}


def test_what_hangs_is_given_back_when_its_worker_begins_nothing_more() -> None:
    """Otherwise the worker would send without labels, beside the new owner's copies."""

    async def scenario() -> None:
        marks = {HERE: Mark(0, 0), BESIDE: Mark(0, 0)}
        driver = Driver(marks=marks, drain_s=0.0, lease_s=1.0)
        member, clock = driver.loop.member, asyncio.get_running_loop()
        await driver.loop._look()
        member._is_known_alive(clock_s())
        assert driver.spans(), "the spans are under way, and never end"
        until_s = clock.time() + (member.ours_until_ms - now_ms()) / 1000
        # Kafka hears of this process all the time.
        member._is_known_alive(clock_s() + 60.0)
        member._take(frozenset(), member.owned)
        await asyncio.gather(*member._tasks)
        assert member.owned == frozenset()
        assert clock.time() >= until_s - 0.1

    asyncio.run(scenario())
