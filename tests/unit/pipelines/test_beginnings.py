"""A pipeline with kept state continues where its state ends, in the topic that it belongs to."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pipelines.beginnings import Entrance
from pipelines.windows.change import KeptPosition
from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka.leases.fenced_positions import Reach

A, B = (KafkaPartition("hifi.stream.s", number) for number in range(2))


@dataclass
class Log:
    begins: Mapping[KafkaPartition, int]
    over: Mapping[KafkaPartition, int]

    async def starts(self, places: Collection[KafkaPartition]) -> Position:
        return {where: self.begins[where] for where in places}

    async def ends(self, places: Collection[KafkaPartition]) -> Position:
        return {where: self.over[where] for where in places}


@pytest.mark.parametrize(
    ("group", "is_new", "kept", "here", "there"),
    [
        # The group agrees, or a person has moved it on.
        (Reach(40, 45), False, KeptPosition({A: 40}, "one"), "one", Reach(40, 45)),
        (Reach(50, 50), False, KeptPosition({A: 40}, "one"), "one", Reach(50, 50)),
        # Kafka reports an offset from before the last transaction: its events are in the state.
        (Reach(30, 45), False, KeptPosition({A: 40}, "one"), "one", Reach(40, 45)),
        # Kafka has forgotten the group, and the pipeline would begin at the end.
        (Reach(90, 90), True, KeptPosition({A: 40}, "one"), "one", Reach(40, 90)),
        # The topic is another one, and its log has grown beyond the old position, or has not.
        (Reach(90, 90), True, KeptPosition({A: 40}, "one"), "two", Reach(10, 10)),
        (Reach(10, 10), True, KeptPosition({A: 400}, "one"), "two", Reach(10, 10)),
        (Reach(40, 40), False, KeptPosition({A: 40}, "one"), "two", Reach(10, 10)),
        # Nobody knows whether it is another one.
        (Reach(90, 90), True, KeptPosition({A: 40}, ""), "two", Reach(40, 90)),
        (Reach(90, 90), True, KeptPosition({A: 40}, "one"), "", Reach(40, 90)),
    ],
)
def test_it_goes_on_where_its_state_ends_if_that_is_in_the_same_topic(
    group: Reach, kept: KeptPosition, here: str, there: Reach, *, is_new: bool
) -> None:
    log: Any = Log({A: 10, B: 0}, {A: 100, B: 7})
    nothing: Any = None
    entrance = Entrance(nothing, log, *[nothing] * 9)
    found = {A: group, B: Reach(7, 7)}
    begun = asyncio.run(entrance._as_kept("lane", found, kept, here, is_new=is_new))
    # The stream has gained a partition since: it is read whole, unless the group knows better.
    assert begun == {A: there, B: begun[B]}
    assert begun[B].at == (0 if is_new or (kept.topic_id and here and kept.topic_id != here) else 7)
