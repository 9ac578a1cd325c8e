"""Lanes' positions in Kafka: each change is committed, and sometimes an unchanged one."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from structlog.testing import capture_logs

from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka import lane_positions
from shared.runtime.kafka.lane_positions import LaneGroups, LanePositions
from shared.runtime.kafka.refusals import missing_right
from shared.runtime.setup_error import KafkaUnavailableError

HERE = {KafkaPartition("hifi.stream.s", 0): 5}


class Groups(LaneGroups):
    """Groups of a Kafka that notes each commit, and has no position of any lane."""

    meanwhile: Callable[[], None] | None = None

    def __init__(self, _: str) -> None:
        self.committed: list[tuple[str, Position]] = []
        # The lanes that Kafka refuses, and how many commits were under way at the same time.
        self.refuses: dict[str, KafkaError] = {}
        self.running = self.running_max = self.refused_count = self.opened_count = 0

    async def __aenter__(self) -> Self:
        self.opened_count += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def commit(self, lane: str, position: Position) -> None:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.meanwhile is not None:
            self.meanwhile()
        if lane in self.refuses:
            self.refused_count += 1
            raise self.refuses[lane]
        self.committed.append((lane, position))

    async def position(self, _: str) -> None:
        return None


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    groups = Groups("")
    monkeypatch.setattr(lane_positions, "LaneGroups", lambda _: groups)
    return groups


def test_a_lane_that_stands_still_is_told_of_again_before_kafka_forgets_it(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = LanePositions("kafka")
    for _ in range(5):
        positions.enter("s/d", HERE)
        asyncio.run(positions.commit())
    assert groups.committed == [("s/d", HERE)]
    monkeypatch.setattr(lane_positions, "_TELL_AGAIN_S", 0.0)
    positions.enter("s/d", HERE)
    asyncio.run(positions.commit())
    assert groups.committed == [("s/d", HERE)] * 2


def test_a_thousand_lanes_are_told_in_two_rounds_and_not_all_at_the_same_time(
    groups: Groups,
) -> None:
    positions = LanePositions("kafka")
    for number in range(1_000):
        positions.enter(f"s/{number}", HERE)
    for _ in range(2):
        asyncio.run(positions.commit())
    assert len({lane for lane, _ in groups.committed}) == len(groups.committed) == 1_000
    assert 8 <= groups.running_max <= 32


@pytest.mark.parametrize("count", [1, 20])
def test_a_lane_that_kafka_does_not_take_holds_up_no_other(groups: Groups, count: int) -> None:
    positions = LanePositions("kafka")
    lanes = [f"s/{number}" for number in range(100)]
    for lane in lanes:
        positions.enter(lane, HERE)
    # For example, their topic was just removed, or a Kafka partition of groups has no leader.
    refused = lanes[:count]
    groups.refuses |= dict.fromkeys(refused, UnknownTopicOrPartitionError())
    asyncio.run(positions.commit())
    assert {lane for lane, _ in groups.committed} == set(lanes) - set(refused)
    groups.refuses.clear()
    asyncio.run(positions.commit())
    assert {lane for lane, _ in groups.committed} == set(lanes)


NO_RIGHT = GroupAuthorizationFailedError("hifi.lane.s.d")


def test_the_last_word_is_tried_once_more_and_not_for_ever(groups: Groups) -> None:
    positions = LanePositions("kafka")
    positions.enter("s/d", HERE)
    groups.refuses["s/d"] = NO_RIGHT
    asyncio.run(positions.commit())
    asyncio.run(positions.commit())
    assert groups.refused_count == 1, "a person must fix it, which takes time"
    asyncio.run(positions.tell_last())
    assert groups.refused_count == 2
    # Somebody has fixed it, and nothing has been tried since.
    groups.refuses.clear()
    asyncio.run(positions.tell_last())
    assert groups.committed == [("s/d", HERE)]


def test_a_right_that_is_missing_for_one_lane_keeps_no_other_untold(groups: Groups) -> None:
    """Kafka is not asked for a new connection because of the refused lane, either."""
    positions, later = LanePositions("kafka"), {KafkaPartition("hifi.stream.s", 0): 6}
    groups.refuses["s/d"] = NO_RIGHT
    for position in (HERE, later):
        for lane in ("s/d", "s/e"):
            positions.enter(lane, position)
        asyncio.run(positions.commit())
    assert groups.committed == [("s/e", HERE), ("s/e", later)]
    assert (groups.refused_count, groups.opened_count) == (1, 1)


def test_a_last_word_that_gets_no_answer_ends(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_positions, "_LAST_WORD_S", 0.02)
    monkeypatch.setattr(lane_positions, "_ASK_AGAIN_S", 0.0)
    positions = LanePositions("kafka")
    positions.enter("s/d", HERE)
    groups.refuses["s/d"] = NotCoordinatorForGroupError()
    with capture_logs() as logs:
        asyncio.run(positions.tell_last())
    assert logs[-1]["error"] == "no answer from Kafka"
    groups.refuses.clear()
    asyncio.run(positions.commit())
    assert groups.committed == [("s/d", HERE)], "the position is still known"


def test_only_those_are_told_now_that_somebody_waits_for(groups: Groups) -> None:
    positions = LanePositions("kafka")
    for lane in ("s/a", "s/b"):
        positions.enter(lane, HERE)
    asyncio.run(positions.tell(["s/b", "s/c"]))
    assert groups.committed == [("s/b", HERE)]


def test_of_a_lane_that_others_have_nothing_is_told_any_more(groups: Groups) -> None:
    positions = LanePositions("kafka")
    positions.enter("s/a", HERE)
    positions.forget(["s/a"])
    asyncio.run(positions.tell_last())
    assert groups.committed == []
    # The lane leaves while its commit fails.
    positions.enter("s/a", HERE)
    groups.refuses["s/a"] = NotCoordinatorForGroupError()
    groups.meanwhile = lambda: positions.forget(["s/a"])
    asyncio.run(positions.commit())
    groups.refuses.clear()
    asyncio.run(positions.tell_last())
    assert (groups.refused_count, groups.committed) == (1, [])
    # The same with a commit that succeeds: when the lane returns, others may have reported more.
    for _ in range(2):
        positions.enter("s/a", HERE)
        asyncio.run(positions.commit())
    assert groups.committed == [("s/a", HERE)] * 2


class Refusing(LaneGroups):
    """Groups of a Kafka that refuses each commit."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._coordinators: dict[str, int] = {}

    async def _ask(self, _: str, __: Any) -> Any:
        return SimpleNamespace(topics=[("hifi.stream.s", [(0, self._code)])])


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (GroupAuthorizationFailedError, "use the consumer group hifi.lane.s.d:"),
        (TopicAuthorizationFailedError, "use the topic hifi.stream.s:"),
    ],
)
def test_what_may_not_be_told_is_named(error: type[Exception], what: str) -> None:
    groups = Refusing(error.errno)  # type: ignore[attr-defined]
    with pytest.raises(error) as refused:
        asyncio.run(groups.commit("s/d", HERE))
    assert what in (missing_right("kafka:1", refused.value) or "")


class Saying(Groups):
    """Groups of a Kafka that knows some lanes' positions, and notes who asks."""

    def __init__(self, says: dict[str, Position | Exception | None]) -> None:
        super().__init__("")
        self.says, self.asked = says, list[str]()

    async def position(self, lane: str) -> Any:
        self.asked.append(lane)
        await asyncio.sleep(0)
        if isinstance(answer := self.says[lane], Exception):
            raise answer
        return answer


def test_how_far_new_lanes_had_told_that_they_were_is_asked_at_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Saying({"s/a": HERE, "s/b": {}})
    monkeypatch.setattr(lane_positions, "LaneGroups", lambda _: groups)
    monkeypatch.setattr(lane_positions, "_ANSWERS_S", 30.0)
    positions = LanePositions("kafka")
    for _ in range(2):
        assert asyncio.run(positions.last(["s/a", "s/b"])) == {"s/a": HERE, "s/b": {}}
    assert groups.asked == ["s/a", "s/b"] * 2


@pytest.mark.parametrize(
    ("silence", "told"),
    [
        (None, []),
        (KafkaUnavailableError("Kafka is away"), ["Kafka is away"]),
        (TimeoutError(), ["TimeoutError()"]),
    ],
)
def test_what_kafka_does_not_say_is_asked_again_after_a_while_and_told_once(
    silence: Exception | None, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, now_s = Saying({"s/a": HERE, "s/b": silence}), 100.0
    monkeypatch.setattr(lane_positions, "LaneGroups", lambda _: groups)
    monkeypatch.setattr(lane_positions, "_ANSWERS_S", 30.0)
    monkeypatch.setattr(lane_positions, "time", SimpleNamespace(monotonic=lambda: now_s))
    positions = LanePositions("kafka")
    with capture_logs() as logs:
        for _ in range(3):
            assert asyncio.run(positions.last(["s/a", "s/b"])) == {"s/a": HERE}
            # Planning waits for the answer: no other lane may stand still all that time.
            assert asyncio.run(positions.last(["s/a", "s/b"])) == {}
            now_s += 5.0
        groups.says["s/b"] = {}
        assert asyncio.run(positions.last(["s/b"])) == {"s/b": {}}
    assert [each["error"] for each in logs] == told
    assert len(groups.asked) == 7


def test_an_answer_that_takes_long_holds_nobody_up_and_counts_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Saying({"s/a": HERE})
    monkeypatch.setattr(lane_positions, "LaneGroups", lambda _: groups)
    monkeypatch.setattr(lane_positions, "_ANSWERS_S", 0.0)
    positions = LanePositions("kafka")

    async def scenario() -> None:
        for _ in range(2):
            assert await positions.last(["s/a"]) == {}
        assert positions._asking is not None
        await positions._asking
        assert await positions.last(["s/a"]) == {"s/a": HERE}

    asyncio.run(scenario())
    assert groups.asked == ["s/a"]
