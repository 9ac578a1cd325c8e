"""Tries pipelines for people who request it at a gateway; writes none of their rows.

A trial is answered by the process that has the slot of the trial's key. Trials take turns, in the
process that judges documents.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from pipelines.functions.granted import granted
from pipelines.judging.apart.judge_client import JudgeClient, JudgeDiedError, JudgeTookTooLongError
from pipelines.judging.apart.judge_process import JudgeQuestion
from pipelines.judging.apart.trial_answer import TRIAL_S_MAX, tried_on
from pipelines.judging.trial import given_records
from pipelines.shards import partitionings
from pipelines.tables.look_ups import Tables
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.config.pipeline_tests import PipelineTest
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import TRIALS, stream_topic
from shared.event.trial import (
    ANSWER_WITHIN_S,
    TrialAnswer,
    TrialAsked,
)
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup.stream_pages import StreamPages
from shared.runtime.kafka.tail import Tail, readable_trials
from shared.runtime.tenant_turns import TenantTurns

log = structlog.get_logger()

_FRESH_MS = round(1_000 * ANSWER_WITHIN_S)
_READ_MAX = 1_000
# A trial that ignores its cancellation ends with its process.
_CUT_OFF_S = TRIAL_S_MAX + 2.0


@dataclass(kw_only=True)
class Trials:
    """The trials that this process runs."""

    bootstrap_servers: str
    judge: JudgeClient
    configuration: Callable[[], Configuration]
    # Returns None while some table is not available.
    tables: Callable[[Pipeline, Configuration], Tables | None]
    # Both take the key by which the slot of a trial is found.
    is_ours: Callable[[str], bool]
    answer: Callable[[str, RecordOut], Awaitable[None]]

    def __post_init__(self) -> None:
        self._turns = TenantTurns(1)
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
        async with self._turns.of(asked.tenant):
            if record.timestamp_ms + _FRESH_MS < now_ms():
                return
            try:
                answer = await self._found(asked)
                row = RecordOut(TRIALS, record.key, answer.to_bytes())
                await self.answer((record.key or b"").hex(), row)
            except Exception as error:  # noqa: BLE001 - the caller's request times out
                log.warning("trial.failed", tenant=asked.tenant, error=repr(error)[:500])

    async def _found(self, asked: TrialAsked) -> TrialAnswer:
        configuration = self.configuration()
        pipeline = Pipeline.of(json.loads(bytes(asked.document)))
        tables = self.tables(pipeline, configuration)
        if tables is None:
            named = ", ".join(sorted(pipeline.tables))
            return TrialAnswer(f"some of the tables that it names are not available here: {named}")
        if asked.events:
            events = tuple(json.loads(bytes(event)) for event in asked.events)
            records = given_records(pipeline, PipelineTest(given=events), 0)
        else:
            topic = stream_topic(pipeline.source.stream)
            pages = StreamPages(self.bootstrap_servers)
            page = await pages.newest(topic, count=asked.newest, wanted=lambda _: True)
            records = [*reversed(page.records)]
        known = {
            "streams": partitionings(pipeline, configuration),
            "tables": tables,
            "functions": granted(asked.tenant, configuration),
        }
        try:
            answer: TrialAnswer = await self.judge.ask(
                asked.tenant,
                JudgeQuestion(tried_on, (pipeline, records), known),
                within_s=_CUT_OFF_S,
            )
        except JudgeTookTooLongError as error:
            return TrialAnswer(f"the trial takes {error}", is_unfinished=True)
        except JudgeDiedError:
            return TrialAnswer("the trial takes more memory than there is for that")
        return answer
