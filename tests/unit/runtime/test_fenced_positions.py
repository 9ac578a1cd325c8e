"""Positions in the group of the leases: questions, commits, and the meaning of the answers."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)

from shared.event.record import KafkaPartition
from shared.runtime.kafka.leases import fenced_positions
from shared.runtime.kafka.leases.fenced_positions import WHATEVER, FencedPositions, Reach
from shared.runtime.kafka.leases.member import Standing

TIER = "hifi.retry.30s"
A, B = KafkaPartition(TIER, 0), KafkaPartition(TIER, 1)
AS_ONE = Standing("hifi.leases.retrier", "one", 3)


class Answering(FencedPositions):
    """Positions in a Kafka that gives these answers."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("kafka", AS_ONE.group)
        self.answers: Iterator[Any] = iter(answers)
        self.asked: list[Any] = []

    async def _ask(self, request: Callable[[], Any]) -> Any:
        self.asked.append(request())
        return next(self.answers)


def fetched(*rows: tuple[int, int, str, int], error_code: int = 0) -> Any:
    return SimpleNamespace(error_code=error_code, topics=[(TIER, list(rows))])


def committed(error: type[KafkaError] | None = None) -> Any:
    code = error.errno if error else 0
    return SimpleNamespace(topics=[(TIER, [(0, 0), (1, code)])])


def test_it_knows_what_was_said_and_of_what_a_person_has_set_nothing_more() -> None:
    kafka = Answering(fetched((0, 5, "9,77", 0), (1, 4, "", 0), (2, -1, "", 0)))
    assert asyncio.run(kafka.read()) == {A: Reach(5, 9, 77), B: Reach(4, WHATEVER)}


@pytest.mark.parametrize(
    "answer",
    [
        fetched(error_code=NotCoordinatorForGroupError.errno),
        fetched((0, -1, "", UnknownTopicOrPartitionError.errno)),
    ],
)
def test_what_kafka_cannot_say_is_not_taken_for_nothing(answer: Any) -> None:
    with pytest.raises(KafkaError):
        asyncio.run(Answering(answer).read())


def test_while_the_group_changes_it_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced_positions, "_AGAIN_S", 0.0)
    kafka = Answering(
        committed(RebalanceInProgressError), committed(IllegalGenerationError), committed()
    )
    standings = iter([AS_ONE, AS_ONE, AS_ONE._replace(generation=4)])
    asyncio.run(kafka.write({A: Reach(1, 2), B: Reach(3, 3)}, lambda: next(standings)))
    assert [asked._consumer_group_generation_id for asked in kafka.asked] == [3, 3, 4]


def test_one_that_kafka_has_given_up_says_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced_positions, "_SETTLED_WITHIN_S", 0.0)
    for error in (UnknownMemberIdError, IllegalGenerationError):
        with pytest.raises(error):
            asyncio.run(Answering(committed(error)).write({B: Reach(3, 3)}, lambda: AS_ONE))
    silent = Answering()
    with pytest.raises(UnknownMemberIdError):
        asyncio.run(silent.write({B: Reach(3, 3)}, lambda: None))
    asyncio.run(silent.write({}, lambda: None))
    assert silent.asked == []
