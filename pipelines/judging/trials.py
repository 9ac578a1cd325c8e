"""Tries pipelines for people who ask a gateway to, beside those that run; nothing is written.

Of all processes the one that has the slot of a trial's key answers it. Trials take turns: they have
Spark's time from those that run, and little of it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.functions.granted import granted
from pipelines.judging.judge import judge
from pipelines.judging.trial import Came, came_of, given_records
from pipelines.members import first_line
from pipelines.parts.alone import ExecutorTurns
from pipelines.parts.bounded import TookTooLongError, bounded
from pipelines.parts.whole_events import FILTERED
from pipelines.shards import Partitionings, partitionings
from pipelines.tables.look_ups import Tables
from shared.config.configuration import Configuration
from shared.config.outside.call import Call
from shared.config.pipeline import Explode, Pipeline, ToStream, Where
from shared.config.pipeline_tests import PipelineTest
from shared.config.steps.window import Dedupe
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import TRIALS, stream_topic
from shared.event.trial import (
    ANSWER_WITHIN_S,
    TrialAnswer,
    TrialAsked,
    TrialRow,
)
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup.stream_pages import StreamPages
from shared.runtime.kafka.tail import Tail, readable_trials

log = structlog.get_logger()

_FRESH_MS = round(1_000 * ANSWER_WITHIN_S)
_READ_MAX = 1_000
_AT_ONCE = 1
_TRIAL_S_MAX = 15.0
_POOL = "trials"
# An output that takes whatever the steps leave.
_EVERYTHING = (ToStream("trial"),)
# Of what is answered: one record has to hold it.
_VALUE_CHARS_MAX, _WHY_MAX, _CHARS_MAX = 1_000, 300, 150_000


@dataclass(kw_only=True)
class Trials:
    """Those that this process is asked for."""

    bootstrap_servers: str
    spark: Callable[[], Awaitable[SparkSession]]
    configuration: Callable[[], Configuration]
    # None while some table is not to be had.
    tables: Callable[[Pipeline, Configuration], Tables | None]
    # Both get what the slot of a trial is found by.
    is_ours: Callable[[str], bool]
    answer: Callable[[str, RecordOut], Awaitable[None]]
    turns: ExecutorTurns = field(default_factory=ExecutorTurns)

    def __post_init__(self) -> None:
        self._turn = asyncio.Semaphore(_AT_ONCE)
        # Of the tenants whose trials run or wait; forgotten with the last of them.
        self._own_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        tail = Tail(self.bootstrap_servers, TRIALS, back_ms=_FRESH_MS, records_max=_READ_MAX)
        await tail.run(self._take)

    def _take(self, records: Sequence[RecordIn]) -> None:
        for record, asked in readable_trials(records):
            if isinstance(asked, TrialAsked) and self.is_ours((record.key or b"").hex()):
                task = asyncio.create_task(self._try(record, asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _try(self, record: RecordIn, asked: TrialAsked) -> None:
        own_turn = self._own_turns.setdefault(asked.tenant, asyncio.Lock())
        async with own_turn, self._turn:
            if record.timestamp_ms + _FRESH_MS < now_ms():
                return
            try:
                answer = await self._found(asked)
                row = RecordOut(TRIALS, record.key, answer.to_bytes())
                await self.answer((record.key or b"").hex(), row)
            except Exception as error:  # noqa: BLE001 - whoever asks is told that nobody answers
                log.warning("trial.failed", tenant=asked.tenant, error=repr(error)[:500])

    async def _found(self, asked: TrialAsked) -> TrialAnswer:
        configuration = self.configuration()
        pipeline = Pipeline.of(json.loads(bytes(asked.document)))
        tables = self.tables(pipeline, configuration)
        if tables is None:
            named = ", ".join(sorted(pipeline.tables))
            return TrialAnswer(f"of the tables that it names some are not to be had here: {named}")
        if asked.events:
            events = tuple(json.loads(bytes(event)) for event in asked.events)
            records = given_records(pipeline, PipelineTest(given=events), 0)
        else:
            topic = stream_topic(pipeline.source.stream)
            pages = StreamPages(self.bootstrap_servers)
            page = await pages.newest(topic, count=asked.newest, wanted=lambda _: True)
            records = [*reversed(page.records)]
        async with self.turns.among_others():
            return await asyncio.to_thread(
                tried_on,
                await self.spark(),
                pipeline,
                records,
                streams=partitionings(pipeline, configuration),
                tables=tables,
                functions=granted(asked.tenant, configuration),
            )


def tried_on(
    session: SparkSession,
    pipeline: Pipeline,
    records: Sequence[RecordIn],
    *,
    streams: Partitionings,
    tables: Tables,
    functions: frozenset[str],
) -> TrialAnswer:
    """Judge the pipeline as before it is run, and then run these events through it."""
    given = tuple(_text(record.value) for record in records)
    try:
        with bounded(session.sparkContext, _POOL, _TRIAL_S_MAX):
            if (refusal := judge(session, pipeline, functions)) is not None:
                return TrialAnswer(*refusal, given)
            came = came_of(session, pipeline, records, streams, tables)
            dropped = {row.origin for row in came if row.outcome == FILTERED}
            why = _dropped_by(session, pipeline, records, tables, dropped)
    except TookTooLongError as error:
        said = f"{error}, as it may on a machine that is busy or has just started"
        return TrialAnswer(said, given=given, is_unfinished=True)
    except (PySparkException, Py4JJavaError) as error:
        return TrialAnswer(f"it fails on these events: {first_line(error)}", given=given)
    nth_of = {record.origin: nth for nth, record in enumerate(records, start=1)}
    rows: list[TrialRow] = []
    room = _CHARS_MAX - sum(map(len, given))
    for each in came:
        row = _row(each, nth_of.get(each.origin), why.get(each.origin, ""))
        room -= len(row.value) + len(row.key or "") + len(row.reason)
        if room < 0:
            break
        rows.append(row)
    return TrialAnswer("", "", given, tuple(rows), len(came) - len(rows))


def _dropped_by(
    session: SparkSession,
    pipeline: Pipeline,
    records: Sequence[RecordIn],
    tables: Tables,
    dropped: AbstractSet[Origin],
) -> Mapping[Origin, str]:
    """Which step it is that lets an event go no further: the pipeline is run up to each."""
    found: dict[Origin, str] = {}
    for nth, step in enumerate(pipeline.steps, start=1):
        if found.keys() >= dropped:
            break
        if isinstance(step, Where | Explode | Dedupe | Call):
            steps = pipeline.steps[:nth]
            part = replace(pipeline, steps=steps, to=_EVERYTHING, match=None, tests=())
            text = f": {step.where}" if isinstance(step, Where) else ""
            for row in came_of(session, part, records, tables=tables):
                if row.outcome == FILTERED:
                    found.setdefault(row.origin, f"by step {nth}, {step.member}{text}"[:_WHY_MAX])
    return dict.fromkeys(dropped, "no output takes it") | found


def _row(came: Came, nth: int | None, dropped_by: str) -> TrialRow:
    key = None if came.key is None else _text(came.key)
    why = came.reason or dropped_by
    return TrialRow(nth, came.outcome, why, came.target or "", key, _text(came.value))


def _text(value: bytes) -> str:
    text = value.decode(errors="replace")
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}…"
