"""Stores rows in Kafka for the tasks of a worker process, and deletes keys there."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from shared.event.record import RecordOut
from shared.event.topics import OUTCOME_BYTES_MAX
from shared.runtime.kafka.clients import (
    AWAY,
    RECORD_REFUSED,
    KafkaProducer,
    new_producer,
    start_client,
)

_BATCH_BYTES = 262_144
# The client's numbers of records wrap wrongly after 2**31 records of a Kafka partition.
_RECORDS_MAX = 2**30


class Outlet:
    """A worker process's producer, replaced when it fails."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._producer: KafkaProducer | None = None
        # Many strands need the producer at the same time.
        self._opening = asyncio.Lock()
        self._record_count = 0
        # How many stores each producer has under way, including producers that were given up.
        self._users: Counter[KafkaProducer] = Counter()

    async def store(self, rows: Sequence[RecordOut]) -> None:
        """Store rows; return when every replica in sync holds every row."""
        if not rows:
            return
        producer: KafkaProducer = await self._opened()
        self._users[producer] += 1
        self._record_count += len(rows)
        if self._record_count > _RECORDS_MAX and self._producer is producer:
            self._producer, self._record_count = None, 0
        try:
            reports = [
                await producer.send(row.topic, row.value, key=row.key, headers=list(row.headers))
                for row in rows
            ]
            for report in reports:
                await report
        except RECORD_REFUSED:
            raise
        except AWAY:
            # A producer that has given up a record may refuse all later ones.
            if self._producer is producer:
                self._producer = None
            raise
        finally:
            self._users[producer] -= 1
            if not self._users[producer]:
                del self._users[producer]
                if self._producer is not producer:
                    # All other users of this producer have their results.
                    await producer.stop()

    async def take_away(self, topic: str, keys: Sequence[bytes]) -> None:
        """Delete these keys from a compacted topic."""
        producer: KafkaProducer = await self._opened()
        for report in [await producer.send(topic, None, key=key) for key in keys]:
            await report

    async def _opened(self) -> KafkaProducer:
        async with self._opening:
            if self._producer is None:
                producer = new_producer(
                    self._bootstrap_servers,
                    enable_idempotence=True,
                    max_request_size=OUTCOME_BYTES_MAX,
                    compression_type="lz4",
                    # Only one batch of each Kafka partition is under way at a time, and a failing
                    # destination makes megabytes a second.
                    max_batch_size=_BATCH_BYTES,
                    client_id="hifi-outcomes",
                )
                self._producer = await start_client(producer, self._bootstrap_servers)
            opened: KafkaProducer = self._producer
            return opened

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()
