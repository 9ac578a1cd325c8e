"""Runs events through a pipeline on trial, and returns the rows; writes nothing."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.judging.judge import judge
from pipelines.judging.trial import PreviewRow, came_of
from pipelines.members import first_line
from pipelines.parts.bounded import TookTooLongError, bounded
from pipelines.parts.whole_events import FILTERED
from pipelines.shards import Partitionings
from pipelines.tables.look_ups import Tables
from shared.config.outside.call import Call
from shared.config.pipeline import Explode, Pipeline, ToStream, Where
from shared.config.steps.window import Dedupe
from shared.event.record import Origin, RecordIn
from shared.event.trial import TrialAnswer, TrialRow

TRIAL_S_MAX = 15.0
_POOL = "trials"
# An output that takes every event that passes the steps.
_EVERYTHING = (ToStream("trial"),)
# Limits, as the answer must fit into one record.
_VALUE_CHARS_MAX, _WHY_MAX, _CHARS_MAX = 1_000, 300, 150_000


def tried_on(
    session: SparkSession,
    pipeline: Pipeline,
    records: Sequence[RecordIn],
    *,
    streams: Partitionings,
    tables: Tables,
    functions: frozenset[str],
) -> TrialAnswer:
    """Judge the pipeline as usual before a run, then run these events through it."""
    given = tuple(_text(record.value) for record in records)
    try:
        with bounded(session.sparkContext, _POOL, TRIAL_S_MAX):
            if (refusal := judge(session, pipeline, functions)) is not None:
                return TrialAnswer(*refusal, given)
            came = came_of(session, pipeline, records, streams, tables)
            dropped = {row.origin for row in came if row.outcome == FILTERED}
            why = _dropped_by(session, pipeline, records, tables, dropped)
    except TookTooLongError as error:
        reason = f"{error}, as may happen on a machine that is busy or has just started"
        return TrialAnswer(reason, given=given, is_unfinished=True)
    except (PySparkException, Py4JJavaError) as error:
        return TrialAnswer(f"it fails on these events: {first_line(error)}", given=given)
    nth_of = {record.origin: number for number, record in enumerate(records, start=1)}
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
    """Find the step that drops each event, by running the pipeline up to each step."""
    reasons: dict[Origin, str] = {}
    for number, step in enumerate(pipeline.steps, start=1):
        if reasons.keys() >= dropped:
            break
        if isinstance(step, Where | Explode | Dedupe | Call):
            steps = pipeline.steps[:number]
            part = replace(pipeline, steps=steps, to=_EVERYTHING, match=None, tests=())
            text = f": {step.where}" if isinstance(step, Where) else ""
            for row in came_of(session, part, records, tables=tables):
                if row.outcome == FILTERED:
                    reasons.setdefault(
                        row.origin, f"by step {number}, {step.member}{text}"[:_WHY_MAX]
                    )
    return dict.fromkeys(dropped, "no output takes it") | reasons


def _row(came: PreviewRow, nth: int | None, dropped_by: str) -> TrialRow:
    key = None if came.key is None else _text(came.key)
    why = came.reason or dropped_by
    return TrialRow(nth, came.outcome, why, came.target or "", key, _text(came.value))


def _text(value: bytes) -> str:
    text = value.decode(errors="replace")
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}…"
