"""A strand sends ahead of what Kafka has stored, just far enough not to wait for Kafka."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from delivery.lanes import task
from delivery.lanes.marks import Mark
from delivery.lanes.units import Span, Strand, StrandEnd
from tests.component.delivery.test_task import PATIENCE_S, WHERE, Ground, let_drip
from tests.support.delivery.deliver_runs import events


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    with ExitStack() as resources:
        yield Ground(monkeypatch, resources)


def stores_slowly(ground: Ground, request_count: int) -> None:
    """Prepare six requests; Kafka stores the first outcomes once `request_count` are sent."""
    let_drip(ground)
    ground.kafka.write(events(6, first=6))
    ground.destination("a")

    async def until_more_are_sent() -> None:
        async with asyncio.timeout(PATIENCE_S / 6):
            while len(ground.to["a"].requests) < request_count:  # noqa: ASYNC110 - another thread
                await asyncio.sleep(0.005)

    ground.outlet.awaits = lambda _: None if ground.outlet.rows else until_more_are_sent()


def test_a_kafka_that_stores_slowly_holds_up_no_event_and_has_together_what_came_meanwhile(
    ground: Ground,
) -> None:
    stores_slowly(ground, 6)
    assert ground.run(a=Span(0, 12)) == {"a": StrandEnd(Strand("demo/a", WHERE), 12, 12)}
    assert ground.marks("a")[0] == Mark(2, 12)
    assert ground.marks("a")[1].at >= 10
    assert ground.stored("a") == set(range(12))


def test_no_more_is_sent_ahead_of_what_is_stored_than_may_be_sent_again(ground: Ground) -> None:
    stores_slowly(ground, 2)
    ground.monkeypatch.setattr(task, "_AHEAD_BYTES_MAX", 1)
    assert ground.run(a=Span(0, 12))["a"].at == 12
    assert [mark.at for mark in ground.marks("a")] == [2, 4, 6, 8, 10, 12]
