"""A control store in memory, with a trail of its changes."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gateway.authors import Author
from gateway.control.changes.log import AskedChanges, ChangePage, StoredChange
from gateway.control.changes.record import (
    ChangeRecord,
    Changes,
    Deed,
    RecordedChanges,
    with_deed,
    with_records,
)
from gateway.control.stores.changes import Judge, JudgeAll
from gateway.problems import Problem
from gateway.publish.publisher import Publisher
from shared.config.configuration import Configuration, Stream
from shared.config.pipeline_state import PipelineState, PipelineStates
from shared.event.times import DAY_MS
from shared.event.topics import TopicSpec, stream_topic
from shared.runtime.clock import now_ms
from tests.support.gateway.fake_publisher import PARTITION_COUNT, FakePublisher

if TYPE_CHECKING:
    from gateway.intake.events import Event
    from tests.support.gateway.gateway_fixtures import FixedConfig


@dataclass
class FakeStore:
    """A config topic in memory that all readers follow without delay."""

    config: "FixedConfig"
    publisher: Publisher
    problem: Problem | None = None
    topics: dict[str, int] = field(default_factory=dict)
    reserved: int | None = 48 * DAY_MS
    states: dict[str, PipelineState] = field(default_factory=dict)
    # The beginnings of streams from which Kafka has deleted records.
    begins: dict[str, list[int]] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # The changes and their authors, in the order of writing.
    recorded: list[StoredChange] = field(default_factory=list)

    async def change(self, key: bytes, judge: Judge, *, by: Author, did: str = "") -> None:
        async def judge_all(configuration: Configuration) -> Changes:
            return [(key, await judge(configuration))]

        await self.change_all(judge_all, by=by, did=did)

    async def change_all(self, judge_all: JudgeAll, *, by: Author, did: str = "") -> None:
        if self.problem is not None:
            raise self.problem
        async with self.turn:
            changes = await judge_all(self.config.configuration)
            known = self.config.configuration
            self._take(with_records(known, changes, by=by, did=did))

    async def tell(self, deed: Deed, *, by: Author) -> None:
        async with self.turn:
            self._take(with_deed(self.config.configuration, deed, by=by))

    def _take(self, made: RecordedChanges) -> None:
        for outlived in [*self.config.configuration.outlived(now_ms=now_ms())] * bool(made.changes):
            self.config.configuration = self.config.configuration.apply(outlived, None)
        for change in made.changes:
            self.config.configuration = self.config.configuration.apply(*change)
        for _, value in made.records:
            record = msgspec.json.decode(value, type=ChangeRecord)
            self.recorded.append(StoredChange(now_ms(), record))

    async def page(self, asked: AskedChanges) -> ChangePage:
        """Return a page like the log's: the place of a change is its number in the list."""
        end = len(self.recorded) if asked.before is None else asked.before
        places = [
            place
            for place in range(min(end, len(self.recorded)))
            if asked.takes(self.recorded[place].at_ms, self.recorded[place].change)
        ][::-1]
        shown = places[: asked.count]
        changes = tuple(self.recorded[place] for place in shown)
        return ChangePage(changes, shown[-1] if len(places) > len(shown) else None)

    async def catch_up(self) -> None:
        pass

    async def make_topic(self, stream: Stream) -> None:
        if self.problem is not None:
            raise self.problem
        if self.topics.get(stream.name, 0) > stream.partition_count:
            raise Problem("bad_object", "there are more partitions")
        self.topics[stream.name] = stream.partition_count
        if isinstance(self.publisher, FakePublisher):
            log: list[list[Event]] = [[] for _ in range(PARTITION_COUNT)]
            self.publisher.logs.setdefault(stream_topic(stream.name), log)

    async def make_own(self, spec: TopicSpec) -> None:
        if self.problem is not None:
            raise self.problem
        self.topics.setdefault(spec.name, 1)
        if isinstance(self.publisher, FakePublisher):
            log: list[list[Event]] = [[] for _ in range(PARTITION_COUNT)]
            self.publisher.logs.setdefault(spec.name, log)

    async def drop_own(self, topic: str) -> None:
        if self.problem is not None:
            raise self.problem
        self.topics.pop(topic, None)

    async def is_empty(self, stream: str) -> bool:
        logs = self.publisher.logs if isinstance(self.publisher, FakePublisher) else {}
        return not any(logs.get(stream_topic(stream), ()))

    async def begins_ms(self, stream: str) -> list[int]:
        if self.problem is not None:
            raise self.problem
        return self.begins.get(stream, [])

    async def pipeline_states(self) -> PipelineStates:
        return self.states

    async def reserved_ms(self, stream: str) -> int | None:
        assert stream in self.config.configuration.removed_streams
        return self.reserved
