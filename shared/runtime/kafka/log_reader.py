"""Reads stretches of Kafka's log in bounded time: from a time or an offset to the end as it is now.

What could not be read is named, so that nobody takes it for not being there.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from shared.event.record import RecordIn
from shared.runtime.kafka.client_start import started
from shared.runtime.kafka.records import record_in, spans_of
from shared.runtime.setup_error import SetupError

Where = tuple[str, int]
# [begin, end) of each Kafka partition.
Ranges = Mapping[Where, tuple[int, int]]

_POLL_MS = 300
# Shown in one go: 10 ms of work, so that whoever shares the process hardly notices.
_RECORDS_MAX = 500
# A broker that answers later is as good as away to somebody who waits for a page.
_REQUEST_TIMEOUT_MS = 5_000


def never() -> bool:
    return False


class LogReader:
    """Made by `open_log`."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def spans(self, topics: Iterable[str]) -> dict[Where, tuple[int, int]]:
        """The first offset and the end of each Kafka partition of the topics that exist."""
        return await spans_of(self._consumer, topics)

    async def since(self, wheres: Iterable[Where], at_ms: int) -> dict[Where, int]:
        """The first offset that is not older; nothing where all is older."""
        asked = dict.fromkeys([TopicPartition(*where) for where in wheres], max(at_ms, 0))
        found = await self._consumer.offsets_for_times(asked) if asked else {}
        return {
            (one.topic, one.partition): at.offset for one, at in found.items() if at is not None
        }

    async def read_since(
        self,
        topics: Iterable[str],
        since_ms: int,
        take: Callable[[RecordIn], None],
        *,
        until_s: float,
        is_over: Callable[[], bool] = never,
    ) -> set[Where]:
        """Read topics from a time to their ends as they are now; see `read`."""
        spans = await self.spans(topics)
        firsts = await self.since(spans, since_ms)
        ranges = {where: (first, spans[where][1]) for where, first in firsts.items()}
        return await self.read(ranges, take, until_s=until_s, is_over=is_over)

    async def read(
        self,
        ranges: Ranges,
        take: Callable[[RecordIn], None],
        *,
        until_s: float,
        is_over: Callable[[], bool] = never,
    ) -> set[Where]:
        """Show `take` the records, side by side, until it `is_over`; what time did not allow."""
        consumer = self._consumer
        left = {TopicPartition(*where) for where, (begin, end) in ranges.items() if begin < end}
        consumer.assign(list(left))
        for where in left:
            consumer.seek(where, ranges[where][0])
        while left and not is_over():
            if time.monotonic() > until_s:
                return {(where.topic, where.partition) for where in left}
            batches = await consumer.getmany(*left, timeout_ms=_POLL_MS, max_records=_RECORDS_MAX)
            # What was fetched before comes without a pause, in which others have their turn.
            await asyncio.sleep(0)
            for where, records in batches.items():
                for record in records:
                    if record.offset < ranges[where][1]:
                        take(record_in(record))
            for where in list(left):
                if await consumer.position(where) >= ranges[where][1]:
                    left.discard(where)
                    consumer.pause(where)
        return set()


@contextlib.asynccontextmanager
async def open_log(bootstrap_servers: str) -> AsyncIterator[LogReader]:
    """A reader that belongs to no group; SetupError when Kafka does not answer."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        # A re-drive that broke off has never been.
        isolation_level="read_committed",
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
    )
    try:
        async with started(consumer):
            yield LogReader(consumer)
    except KafkaError as error:
        raise SetupError(
            f"Kafka at {bootstrap_servers} cannot be read now ({error!r}):"
            " try again when it is well."
        ) from error
