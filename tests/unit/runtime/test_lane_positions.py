"""What Kafka is told of lanes' positions: each change, and now and then what has not changed."""

import asyncio
from types import SimpleNamespace
from typing import Any, Self

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from structlog.testing import capture_logs

from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka import lane_positions
from shared.runtime.kafka.lane_positions import LaneGroups, LanePositions, told
from shared.runtime.kafka.refusals import missing_right
from shared.runtime.setup_error import KafkaUnavailableError

HERE = {KafkaPartition("hifi.stream.s", 0): 5}


class Groups(LaneGroups):
    """Those of a Kafka that notes what it is told, and says nothing of a lane when asked."""

    def __init__(self, _: str) -> None:
        self.committed: list[tuple[str, Position]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def commit(self, lane: str, position: Position) -> None:
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


def test_nothing_is_begun_while_kafka_cannot_say_how_far_a_lane_is(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_positions, "_TOLD_TIMEOUT_S", 0.0)
    with pytest.raises(KafkaUnavailableError, match="nothing is begun"):
        told("kafka", "s/d", ["hifi.stream.s"])
    assert groups.committed == []


class Refusing(LaneGroups):
    """Those of a Kafka that says no to each commit."""

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
    """Those of a Kafka that says how far some lanes are, and notes who asks."""

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
            # Planning waits for it: no lane of anybody else is to stand still all the time.
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
