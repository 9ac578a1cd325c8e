"""Stores changes of the configuration, one after the other over all gateways (ADR 0037)."""

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
    held_ms,
    retry_topics,
    stream_spec,
    stream_topic,
)
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.only_writer import KeptWriter, OvertakenError, Row, only_writer
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import TooFewBrokersError, topic_admin
from shared.runtime.kafka.topic_feed import TopicFeed
from shared.runtime.setup_error import KafkaUnavailableError, OperatorError

# Takes the newest configuration; returns the value to store under the key, None to remove it.
Judge = Callable[[Configuration], Awaitable[bytes | None]]
JudgeAll = Callable[[Configuration], Awaitable[Changes]]
# The same, with the author of the change.
Record = Callable[[Configuration], Awaitable[RecordedChanges]]

_TIERS = [tier.name for tier in RetrySchedule().tiers]
_WRITER = "hifi-config"
# Kafka answers an administrator within a second; after this somebody should look at it.
_DEADLINE_S = 10.0
# A change takes some 0.1 s; one that was outrun waits up to this long, and longer each time.
_PAUSE_S = 0.2
# Clients commonly wait longer; more than a hundred changes of others fit into it.
_TURN_S_MAX = 25.0
# Kafka says within milliseconds how far its log goes; the known state is better than no answer.
_CATCH_UP_S = 1.0


class ControlStore(Protocol):
    """The store of streams, destinations, keys and tenants."""

    async def change(self, key: bytes, judge: Judge, *, by: Author, did: str = "") -> None:
        """Store what `judge` makes of the newest configuration, with no other change in between.

        Its author and deed are stored with it (ADR 0102); `did` names the deed better than we can
        find out. Problem when it is not stored. Returns when our own configuration has it.
        """

    async def change_all(self, judge_all: JudgeAll, *, by: Author, did: str = "") -> None:
        """Do the same with several objects, all or none; with none, if nothing is to be done."""

    async def tell(self, deed: Deed, *, by: Author) -> None:
        """Store that something is about to be done that changes no object."""

    async def catch_up(self) -> None:
        """Learn all changes that any gateway has acknowledged, unless Kafka is away."""

    async def make_topic(self, stream: Stream) -> None:
        """Make the stream's topic, or let it grow; Problem when it is not there afterwards."""

    async def make_own(self, spec: TopicSpec) -> None:
        """Make the topic of a table or a pipeline; Problem when it is not there afterwards."""

    async def drop_own(self, topic: str) -> None:
        """Have Kafka delete such a topic, if it is there."""

    async def is_empty(self, stream: str) -> bool:
        """Say whether the stream holds no event, as of now."""

    async def begins_ms(self, stream: str) -> list[int]:
        """Return when the oldest event came, for each Kafka partition that has lost some."""

    async def held_ms(self, stream: str) -> int | None:
        """How long events of a stream may be read after its removal, None if they never expire."""

    async def pipeline_states(self) -> PipelineStates:
        """The newest verdicts on pipelines, by name."""


class KafkaControlStore:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str, feed: ConfigFeed, copies: Copies) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._copies = copies
        self._feed = feed
        # One change at a time; a tenant with many changes lets others in between.
        self._turns = search_turns(1, wait_s=_TURN_S_MAX)
        self._writer = KeptWriter(lambda: only_writer(bootstrap_servers, _WRITER))
        # Followed from the first request on: without pipelines it costs nothing.
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
                # Two writers of equal speed would collide again; a random pause separates them.
                await asyncio.sleep(random.uniform(0, pause_s_max))  # noqa: S311 - no secret
                pause_s_max *= 2

    async def _changed(self, record: Record) -> bool:
        """Try to change it; False if another gateway came in between, and nothing was stored."""
        kept = self._writer.kept
        # A change that is refused here disturbs nobody.
        configuration = await self._feed.newest()
        wanted = await record(configuration)
        if not wanted.changes:
            return True
        written: tuple[Configuration, Changes] | None = None
        try:
            async with self._writer.use() as write:
                # Others can write nothing more before we do: this reads all their changes. If one
                # has overtaken a writer that was open before, nothing will be stored.
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
                # Not the end that Kafka names: a transaction shows a moment after its commit. If
                # this is cancelled, the next change begins a writer, which waits for that moment.
                await self._feed.at({KafkaPartition(CONFIG, stored.partition): stored.offset + 1})
        except OvertakenError:
            # One that was kept open may have been overtaken long ago.
            return kept is not None and await self._changed(record)
        except KafkaUnavailableError:
            if written is None or (was_stored := await self._was_stored(*written)) is None:
                raise
            return was_stored
        return True

    async def _was_stored(self, before: Configuration, changes: Changes) -> bool | None:
        """Say whether Kafka stored a write without an answer; None if others wrote since."""
        async with self._writer.use():
            # We are the only writer now: if it is not stored yet, it never will be.
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
                detail = f"Kafka is still making the topic {name}: send this again in a moment."
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
        # An empty Kafka partition has lost all its events, at an unknown time.
        return [oldest_ms.get(where, now_ms()) for where, (first, _) in spans.items() if first]

    async def held_ms(self, stream: str) -> int | None:
        # The real topics, not the planned ones: longer retention is nobody's fault.
        names = [stream_topic(stream), DEAD, RECEIPTS, ACKED, *retry_topics(_TIERS)]
        async with _in_time(), topic_admin(self._bootstrap_servers) as admin:
            states = await admin.states(names)
        return held_ms(_TIERS, {name: state.settings for name, state in states.items()})

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
    """Judges the present configuration as another store does, and changes nothing."""

    def __init__(self, store: ControlStore, configuration: Callable[[], Configuration]) -> None:
        self._configuration = configuration
        self.catch_up, self.is_empty = store.catch_up, store.is_empty
        self.begins_ms, self.held_ms = store.begins_ms, store.held_ms
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
            f"The stream's topic has {partition_count} partitions and Kafka cannot take any away.",
            pointer="/partition_count",
        )


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Run until the deadline; Problem if Kafka has not answered by then."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            yield
    except (KafkaUnavailableError, TimeoutError) as error:
        raise Problem(
            "kafka_unavailable",
            f"It is not known whether the change was stored: {str(error) or 'Kafka is too slow'}"
            " Read the object, and write it again.",
            headers=((b"retry-after", b"2"),),
        ) from error
