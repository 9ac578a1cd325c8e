"""Events without a key are spread over Kafka partitions, and still share batches."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from gateway.publish.accumulator import Accumulator
from gateway.publish.open_topic import OpenTopic
from gateway.publish.produce_request import Handover
from gateway.publish.report import Fate, Report


def test_few_events_without_a_key_reach_each_partition_and_still_share_batches() -> None:
    """4,000 small events in a few seconds come nowhere near filling a batch."""
    batches: list[tuple[int, int]] = []

    async def send(partition: int, builder: RecordBatch, _: Handover) -> int:
        await asyncio.sleep(0)
        batches.append((partition, builder.count))
        return 0

    async def opened() -> None:
        pass

    async def publish() -> None:
        accumulators = [
            Accumulator(n, partial(RecordBatch, 500_000), send, opened) for n in range(4)
        ]
        topic = OpenTopic(accumulators, turn_bytes=1_000_000)
        event = Event.of(id="e", key=None, value=b"x" * 200, headers=())
        for request in range(400):
            # Five requests come in each turn of the loop, and a turn every 10 ms.
            told = asyncio.get_running_loop().create_future()
            topic.take([event] * 10, told.set_result, now_s=request // 5 * 0.01, now_ms=0)
            if request % 5 == 4:
                await told

    asyncio.run(publish())
    spread = Counter(partition for partition, _ in batches)
    assert sorted(spread) == [0, 1, 2, 3]
    assert max(spread.values()) <= 2 * min(spread.values())
    assert [count for _, count in batches] == [50] * 80


def test_an_event_of_a_partition_that_is_not_known_yet_is_not_stored_and_may_come_again() -> None:
    """A shard was added, and this gateway does not know its Kafka partition yet."""

    async def send(_: int, builder: RecordBatch, __: Handover) -> int:
        assert builder.count == 2
        return 0

    async def opened() -> None:
        pass

    async def publish() -> Sequence[Report]:
        accumulators = [
            Accumulator(n, partial(RecordBatch, 500_000), send, opened) for n in range(2)
        ]
        events = [
            Event("e", b"key", b"{}", b"\0", partition=partition) for partition in (1, 2, 1, 3)
        ]
        told = asyncio.get_running_loop().create_future()
        topic = OpenTopic(accumulators, turn_bytes=1_000_000)
        topic.take(events, told.set_result, now_s=0.0, now_ms=0)
        async with asyncio.timeout(10):
            reports: Sequence[Report] = await told
            return reports

    fates = {n: each.fate for each in asyncio.run(publish()) for n in each.positions}
    assert fates == {0: Fate.STORED, 1: Fate.NOT_STORED, 2: Fate.STORED, 3: Fate.NOT_STORED}
