"""Decides how the audit asks Kafka for ends and positions, and hands out what it has found."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from shared.event.topics import MINUTES, STATEMENTS
from shared.proof.overview import MinuteBooks
from shared.proof.statement import SignedStatement
from shared.runtime.kafka.client_start import started
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.records import spans_of

Where = tuple[str, int]
# What goes wrong when Kafka is away; the run is then tried again.
KAFKA_ERRORS = (KafkaError, OSError)


class AuditKafka:
    """Made by `audit_kafka`."""

    def __init__(
        self,
        bootstrap_servers: str,
        consumer: AIOKafkaConsumer,
        producer: AIOKafkaProducer,
        groups: LaneGroups,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._consumer = consumer
        self._producer = producer
        self._groups = groups

    async def position(self, lane: str) -> Mapping[Where, int]:
        """How far a lane says it is; nothing while nobody can tell."""
        try:
            return await self._groups.position(lane)
        except KafkaError:
            return {}

    async def spans(self, topics: Iterable[str]) -> dict[Where, tuple[int, int]]:
        """The first offset and the end of every Kafka partition of those topics that exist."""
        return await spans_of(self._consumer, topics)

    async def publish_statements(self, statements: Sequence[SignedStatement]) -> None:
        """Write them in their order, and wait until Kafka has them."""
        for one in statements:
            key = f"{one.statement.stream}:{one.statement.minute_ms}".encode()
            await self._producer.send_and_wait(STATEMENTS, key=key, value=one.to_json())

    async def publish_minutes(self, minutes: Sequence[MinuteBooks]) -> None:
        sent = [
            await self._producer.send(
                MINUTES,
                key=f"{one.destination_id}:{one.minute_ms}".encode(),
                value=minute_json(one),
            )
            for one in minutes
        ]
        for report in sent:
            await report


def minute_json(books: MinuteBooks) -> bytes:
    """A minute's books as programs read them."""
    fields = asdict(books)
    fields["state"] = books.state.value
    fields["lost"] = {node.value: count for node, count in books.lost.items()}
    fields["missing"] = [{**asdict(one), "node": one.node.value} for one in books.missing]
    return json.dumps(fields, separators=(",", ":")).encode()


@asynccontextmanager
async def audit_kafka(bootstrap_servers: str) -> AsyncIterator[AuditKafka]:
    """A consumer of no group, a producer, and the lanes' groups, for as long as the block lasts."""
    # Ends are those of what is certain, as what Spark reads up to them is.
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    # As large as the stream topics' records may be: a thousand missing ids fit.
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=True
    )
    async with started(consumer), started(producer), LaneGroups(bootstrap_servers) as groups:
        yield AuditKafka(bootstrap_servers, consumer, producer, groups)
