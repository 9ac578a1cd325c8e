"""Follows the end of a topic: the newest records first, then all that come.

It is for messages between many processes: one that starts late needs only the last of them, and one
that was cut off goes on where it was.
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
_HELD_S = 2.0
# Between attempts to follow again; a Kafka that restarts is away for seconds.
_PAUSE_S, _PAUSE_S_MAX = 0.5, 5.0

Take = Callable[[Sequence[RecordIn]], None]


def readable_trials(records: Iterable[RecordIn]) -> Iterator[tuple[RecordIn, Asked | Answered]]:
    """Read questions and answers in these; skip records that make no sense."""
    for record in records:
        try:
            trial = read_trial(record.value)
        except ValueError as error:
            log.warning("trials.record_refused", origin=record.origin, error=str(error))
            continue
        yield record, trial


class Tail:
    """The records of the last `back_ms`, at most `records_max` of them, and all that follow."""

    def __init__(
        self, bootstrap_servers: str, topic: str, *, back_ms: int, records_max: int
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._back_ms = back_ms
        self._records_max = records_max
        # Where to go on after trouble.
        self._position: dict[KafkaPartition, int] = {}

    async def run(self, take: Take) -> None:
        """Show `take` every record, in order within a Kafka partition."""
        pause_s = _PAUSE_S
        while True:
            try:
                async with open_reader(
                    self._bootstrap_servers, fetch_max_wait_ms=round(_HELD_S * 1000)
                ) as reader:
                    self._position = self._position or await self._begin(reader)
                    follow = reader.follow(self._position)
                    while True:
                        records = await follow.read(wait_s=_HELD_S)
                        take(records)
                        for record in records:
                            topic, partition, offset = record.origin
                            self._position[KafkaPartition(topic, partition)] = offset + 1
                        pause_s = _PAUSE_S
            except Exception as error:  # noqa: BLE001 - whatever it is, we must follow on
                log.warning("tail.cut_off", topic=self._topic, error=str(error), again_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _begin(self, reader: KafkaReader) -> dict[KafkaPartition, int]:
        spans = await reader.spans([self._topic])
        if not spans:
            raise SetupError(f"Kafka has no topic {self._topic}: `hifi up` makes it.")
        recent = await reader.offsets_at(dict.fromkeys(spans, now_ms() - self._back_ms))
        each_max = self._records_max // len(spans)
        return {
            # A Kafka partition without a recent record begins with the next one.
            where: max(recent.get(where, end), end - each_max)
            for where, (_, end) in spans.items()
        }
