"""Follows the end of a topic: it reads the latest records, then all new ones.

It is for messages between many processes. A process that starts late needs only the last messages,
and a process that was cut off continues at its position.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from shared.event.record import KafkaPartition, RecordIn
from shared.event.trial import Answered, Asked, read_trial
from shared.runtime.clock import now_ms
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# Kafka may hold a fetch this long while there are no records; it returns new ones at once.
_LONG_POLL_S = 2.0
# The pause between attempts to follow again; a restarting Kafka is down for seconds.
_PAUSE_S, _PAUSE_S_MAX = 0.5, 5.0

Take = Callable[[Sequence[RecordIn]], None]


def readable_trials(records: Iterable[RecordIn]) -> Iterator[tuple[RecordIn, Asked | Answered]]:
    """Yield the questions and answers in these records; skip invalid records."""
    for record in records:
        try:
            trial = read_trial(record.value)
        except ValueError as error:
            log.warning("trials.record_refused", origin=record.origin, error=str(error))
            continue
        yield record, trial


class Tail:
    """The records of the last `back_ms`, at most `records_max` of them, and all new ones."""

    def __init__(
        self, bootstrap_servers: str, topic: str, *, back_ms: int, records_max: int
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._back_ms = back_ms
        self._records_max = records_max
        # Where to continue after an error.
        self._position: dict[KafkaPartition, int] = {}

    async def run(self, take: Take) -> None:
        """Pass every record to `take`, in order within a Kafka partition."""
        pause_s = _PAUSE_S
        while True:
            try:
                async with open_reader(
                    self._bootstrap_servers, fetch_max_wait_ms=round(_LONG_POLL_S * 1000)
                ) as reader:
                    self._position = self._position or await self._begin(reader)
                    follow = reader.follow(self._position)
                    while True:
                        records = await follow.read(wait_s=_LONG_POLL_S)
                        take(records)
                        for record in records:
                            topic, partition, offset = record.origin
                            self._position[KafkaPartition(topic, partition)] = offset + 1
                        pause_s = _PAUSE_S
            except Exception as error:  # noqa: BLE001 - after any error we must follow again
                log.warning("tail.cut_off", topic=self._topic, error=str(error), again_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _begin(self, reader: KafkaReader) -> dict[KafkaPartition, int]:
        spans = await reader.spans([self._topic])
        if not spans:
            raise SetupError(f"Kafka has no topic {self._topic}: `hifi up` creates it.")
        recent = await reader.offsets_at(dict.fromkeys(spans, now_ms() - self._back_ms))
        each_max = self._records_max // len(spans)
        return {
            # A Kafka partition without a recent record begins with the next one.
            where: max(recent.get(where, end), end - each_max)
            for where, (_, end) in spans.items()
        }
