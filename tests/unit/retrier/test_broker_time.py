"""The retrier asks each broker for its time, and trusts the slowest."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from retrier.broker import Broker
from shared.event.topics import PROBE_PARTITIONS
from tests.support.suite.samples import NOW_MS

BROKERS = 5


@dataclass
class Writer:
    """A producer of a cluster in which each broker is ten seconds behind the previous one."""

    asked: list[int] = field(default_factory=list)

    @property
    def client(self) -> Any:
        return SimpleNamespace(
            cluster=SimpleNamespace(
                leader_for_partition=lambda where: where.partition % BROKERS,
                brokers=lambda: range(BROKERS),
            )
        )

    async def partitions_for(self, _: str) -> set[int]:
        return set(range(PROBE_PARTITIONS))

    async def send(self, _: str, __: bytes, *, partition: int) -> asyncio.Future[Any]:
        self.asked.append(partition % BROKERS)
        report = asyncio.get_running_loop().create_future()
        report.set_result(SimpleNamespace(timestamp=NOW_MS - 10_000 * (partition % BROKERS)))
        return report


def test_each_broker_is_asked_once_and_the_earliest_of_their_times_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer()

    async def writing(_: Broker) -> Writer:
        return writer

    monkeypatch.setattr(Broker, "_writing", writing)
    assert asyncio.run(Broker("kafka").now_ms()) == NOW_MS - 40_000 - 100
    assert sorted(writer.asked) == list(range(BROKERS))
