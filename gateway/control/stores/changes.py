"""Stores changes of the configuration, one at a time over all gateways (ADR 0037)."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import reduce
from typing import Protocol

from gateway.authors import Author
from gateway.control.changes.record import Changes, Deed, RecordedChanges, with_deed, with_records
from gateway.problems import Problem
from gateway.turns import search_turns
from shared.config.configuration import Configuration, Stream
from shared.config.pipeline_state import PipelineStates, with_state
from shared.event.record import KafkaPartition
from shared.event.topic_safety import Copies
from shared.event.topics import (
    ACKED,
    CHANGES,
    CONFIG,
    DEAD,
    PIPELINES,
    RECEIPTS,
    TopicSpec,
    reserved_ms,
    retry_topics,
    stream_spec,
    stream_topic,
)
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import CONFIG_WRITER, ConfigFeed
from shared.runtime.kafka.only_writer import KeptWriter, OvertakenError, Row, only_writer
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import TooFewBrokersError, topic_admin
from shared.runtime.kafka.topic_feed import TopicFeed
from shared.runtime.setup_error import KafkaUnavailableError, OperatorError

# Takes the newest configuration; returns the value to store under the key, or None to remove it.
Judge = Callable[[Configuration], Awaitable[bytes | None]]
JudgeAll = Callable[[Configuration], Awaitable[Changes]]
# The same, with the records of the changes.
Record = Callable[[Configuration], Awaitable[RecordedChanges]]

_TIERS = [tier.name for tier in RetrySchedule().tiers]
# Kafka answers administrative requests within a second; after this time something is wrong.
_DEADLINE_S = 10.0
# A change takes some 0.1 s. If another gateway's change comes first, it waits up to this long the
# first time, and up to twice as long each further time.
_PAUSE_S = 0.2
# Clients commonly wait longer than this, and it is enough for over a hundred other changes.
_TURN_S_MAX = 25.0
# Kafka returns the end of its log within milliseconds; after this time, the known state is used.
_CATCH_UP_S = 1.0


class ControlStore(Protocol):
    """The store of streams, destinations, keys and tenants."""

    async def change(self, key: bytes, judge: Judge, *, by: Author, did: str = "") -> None:
        """Store the change that `judge` makes to the newest configuration, before any other change.

        A record of the change is stored with it (ADR 0102); `did` overrides the record's verb.
        Raise Problem if it is not stored. Return once this gateway's configuration has it.
        """

    async def change_all(self, judge_all: JudgeAll, *, by: Author, did: str = "") -> None:
        """Do the same with several objects in one step; `judge_all` may return no changes."""

    async def tell(self, deed: Deed, *, by: Author) -> None:
        """Store the record of an action that is about to start, and that changes no object."""

    async def catch_up(self) -> None:
        """Read all changes that any gateway has acknowledged, unless Kafka is down."""

    async def make_topic(self, stream: Stream) -> None:
        """Make the stream's topic, or add partitions; raise Problem if that fails."""

    async def make_own(self, spec: TopicSpec) -> None:
        """Make the topic of a table or a pipeline; raise Problem if that fails."""

    async def drop_own(self, topic: str) -> None:
        """Have Kafka delete such a topic, if it exists."""

    async def is_empty(self, stream: str) -> bool:
        """Return whether the stream has no events now."""

    async def begins_ms(self, stream: str) -> list[int]:
        """Return, for each partition with deleted events, when its oldest event was stored."""

    async def reserved_ms(self, stream: str) -> int | None:
        """Return how long events can be read after the stream's removal; None if forever."""

    async def pipeline_states(self) -> PipelineStates:
        """Return the newest state of each pipeline, by name."""


class KafkaControlStore:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str, feed: ConfigFeed, copies: Copies) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._copies = copies
        self._feed = feed
        # One change at a time; a tenant with many changes takes turns with others.
        self._turns = search_turns(1, wait_s=_TURN_S_MAX)
        self._writer = KeptWriter(lambda: only_writer(bootstrap_servers, CONFIG_WRITER))
        # Opened at the first request, so it costs nothing without pipelines.
        self._states: TopicFeed[PipelineStates] | None = None
        self._states_turn = asyncio.Lock()

    async def stop(self) -> None:
        await self._writer.close()
        if self._states is not None:
            await self._states.stop()

    async def change(self, key: bytes, judge: Judge, *, by: Author, did: str = "") -> None:
        async def judge_all(configuration: Configuration) -> Changes:
            return [(key, await judge(configuration))]

        await self.change_all(judge_all, by=by, did=did)

    async def change_all(self, judge_all: JudgeAll, *, by: Author, did: str = "") -> None:
        async def record(configuration: Configuration) -> RecordedChanges:
            changes = await judge_all(configuration)
            return with_records(configuration, changes, by=by, did=did)

        await self._store(record, by.tenant)

    async def tell(self, deed: Deed, *, by: Author) -> None:
        async def record(configuration: Configuration) -> RecordedChanges:
            return with_deed(configuration, deed, by=by)

        await self._store(record, by.tenant)

    async def _store(self, record: Record, tenant: str) -> None:
        async with self._turns.of(tenant), _in_time():
            pause_s_max = _PAUSE_S
            while not await self._changed(record):
                # Two writers with equal pauses would collide again, so the pauses are random.
                await asyncio.sleep(random.uniform(0, pause_s_max))  # noqa: S311 - no secret
                pause_s_max *= 2

    async def _changed(self, record: Record) -> bool:
        """Try to store a change; return False if another gateway's change came in between."""
        kept = self._writer.kept
        # Check it first: a refused change must not interrupt other gateways' writers.
        configuration = await self._feed.newest()
        wanted = await record(configuration)
        if not wanted.changes:
            return True
        written: tuple[Configuration, Changes] | None = None
        try:
            async with self._writer.use() as write:
                # From here on others cannot write before we do, so this reads all their changes.
                # If another gateway has overtaken our open writer, nothing will be stored.
                newest = configuration if write is kept else await self._feed.newest()
                if newest is not configuration:
                    wanted = await record(newest)
                if not wanted.changes:
                    return True
                outlived = set(newest.outlived(now_ms=now_ms())) - dict(wanted.changes).keys()
                changes: Changes = [*wanted.changes, *((key, None) for key in sorted(outlived))]
                written = newest, changes
                rows: list[Row] = [(CHANGES, *each, ()) for each in wanted.records]
                rows += [(CONFIG, *each, ()) for each in changes]
                stored = (await write(rows))[-1]
                # Do not use the end that Kafka reports: a transaction is visible only a moment
                # after its commit. If this wait is cancelled, the next change starts a writer,
                # which waits until the transaction is visible.
                await self._feed.at({KafkaPartition(CONFIG, stored.partition): stored.offset + 1})
        except OvertakenError:
            # A writer that was kept open may have been overtaken long ago.
            return kept is not None and await self._changed(record)
        except KafkaUnavailableError:
            if written is None or (was_stored := await self._was_stored(*written)) is None:
                raise
            return was_stored
        return True

    async def _was_stored(self, before: Configuration, changes: Changes) -> bool | None:
        """Return whether Kafka stored an unanswered write; None if others have written since."""
        async with self._writer.use():
            # We are the only writer now: a write that is not stored yet never will be.
            newest = await self._feed.newest()
        after = reduce(lambda known, each: known.apply(*each), changes, before)
        return newest == after if newest in (before, after) else None

    async def catch_up(self) -> None:
        with suppress(KafkaUnavailableError, TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                await self._feed.newest()

    async def make_topic(self, stream: Stream) -> None:
        name = stream_topic(stream.name)
        async with _in_time(), topic_admin(self._bootstrap_servers) as admin:
            spec = stream_spec(stream.name, partition_count=stream.partition_count)
            try:
                if await admin.create_missing([spec], self._copies):
                    return
            except TooFewBrokersError as error:
                raise Problem("too_few_brokers", str(error)) from error
            state = (await admin.states([name])).get(name)
            if state is None:
                detail = f"Kafka is still creating the topic {name}: send this again in a moment."
                raise Problem("kafka_unavailable", detail)
            _check_not_fewer(stream, state.partition_count)
            if state.partition_count < stream.partition_count:
                await admin.grow(name, stream.partition_count)

    async def make_own(self, spec: TopicSpec) -> None:
        async with _in_time(), topic_admin(self._bootstrap_servers) as admin:
            try:
                await admin.create_missing([spec], self._copies)
            except TooFewBrokersError as error:
                raise Problem("too_few_brokers", str(error)) from error

    async def drop_own(self, topic: str) -> None:
        async with _in_time(), topic_admin(self._bootstrap_servers) as admin:
            await admin.delete([topic])

    async def is_empty(self, stream: str) -> bool:
        async with _in_time(), open_reader(self._bootstrap_servers) as reader:
            spans = await reader.spans([stream_topic(stream)])
        return all(first == end for first, end in spans.values())

    async def begins_ms(self, stream: str) -> list[int]:
        topic = stream_topic(stream)
        async with _in_time(), open_reader(self._bootstrap_servers) as reader:
            spans, oldest_ms = await reader.spans([topic]), await reader.oldest_ms([topic])
        # All events of an empty Kafka partition were deleted, at an unknown time.
        return [oldest_ms.get(where, now_ms()) for where, (first, _) in spans.items() if first]

    async def reserved_ms(self, stream: str) -> int | None:
        # Ask for the topics' real settings: an operator may have set a longer retention.
        names = [stream_topic(stream), DEAD, RECEIPTS, ACKED, *retry_topics(_TIERS)]
        async with _in_time(), topic_admin(self._bootstrap_servers) as admin:
            states = await admin.states(names)
        return reserved_ms(_TIERS, {name: state.settings for name, state in states.items()})

    async def pipeline_states(self) -> PipelineStates:
        async with self._states_turn:
            if self._states is None:
                empty: PipelineStates = {}
                feed = TopicFeed(self._bootstrap_servers, PIPELINES, empty=empty, fold=with_state)
                try:
                    await feed.start()
                except OperatorError as error:
                    raise Problem("kafka_unavailable", str(error)) from error
                self._states = feed
        return self._states.value


class RehearsalStore:
    """Checks changes against the current configuration like a real store, but stores none."""

    def __init__(self, store: ControlStore, configuration: Callable[[], Configuration]) -> None:
        self._configuration = configuration
        self.catch_up, self.is_empty = store.catch_up, store.is_empty
        self.begins_ms, self.reserved_ms = store.begins_ms, store.reserved_ms
        self.pipeline_states = store.pipeline_states

    async def change(self, key: bytes, judge: Judge, *, by: Author, did: str = "") -> None:
        del key, by, did
        await judge(self._configuration())

    async def change_all(self, judge_all: JudgeAll, *, by: Author, did: str = "") -> None:
        del by, did
        await judge_all(self._configuration())

    async def tell(self, deed: Deed, *, by: Author) -> None:
        pass

    async def make_topic(self, stream: Stream) -> None:
        known = self._configuration()
        there = known.streams.get(stream.name) or known.removed_streams.get(stream.name)
        if there is not None:
            _check_not_fewer(stream, there.partition_count)

    async def make_own(self, spec: TopicSpec) -> None:
        pass

    async def drop_own(self, topic: str) -> None:
        pass


def _check_not_fewer(stream: Stream, partition_count: int) -> None:
    if partition_count > stream.partition_count:
        raise Problem(
            "bad_object",
            f"The stream's topic has {partition_count} partitions, and Kafka cannot remove any.",
            pointer="/partition_count",
        )


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Run the block; raise Problem if Kafka has not answered by the deadline."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            yield
    except (KafkaUnavailableError, TimeoutError) as error:
        raise Problem(
            "kafka_unavailable",
            f"It is not known whether the change was stored: {str(error) or 'Kafka is too slow'}"
            " Read the object, and repeat the change if it is missing.",
            headers=((b"retry-after", b"2"),),
        ) from error
