"""Topics as described by a broker that does not know all of them yet."""

import asyncio
from types import SimpleNamespace
from typing import Any

from shared.runtime.kafka.topic_admin import TopicAdmin


class Brokers:
    """Brokers of which one lists a topic that the next one does not know yet."""

    async def list_topics(self) -> list[str]:
        return ["known", "new"]

    async def describe_configs(self, _: object) -> list[Any]:
        resources = [(0, "", 2, name, [("min.insync.replicas", "2")]) for name in ("known", "new")]
        return [SimpleNamespace(resources=resources)]

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        assert names == ["known", "new"]
        partition = {"replicas": [1, 2, 3], "isr": [1, 2]}
        return [{"topic": "known", "partitions": [partition]}, {"topic": "new", "partitions": []}]


def test_a_topic_that_is_just_being_made_is_not_there_yet() -> None:
    admin = TopicAdmin(Brokers())  # type: ignore[arg-type]  # it has what is asked here
    states = asyncio.run(admin.states(["known", "new", "gone"]))
    assert list(states) == ["known"]
    assert (states["known"].replicas_min, states["known"].in_sync_min) == (3, 2)
