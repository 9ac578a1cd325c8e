"""Tries a pipeline on the events of its document's tests, or on events of a stream."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pipelines.alike import is_alike
from pipelines.functions.reducing import fold_in
from pipelines.parts.whole_events import DEAD, FILTERED, LATE
from pipelines.plan import RECORDS, planned
from pipelines.shards import NO_SHARDS, Partitionings
from pipelines.tables.look_ups import GivenRows, Tables
from pipelines.windows.change import Head
from pipelines.windows.open_windows import OpenWindows
from pipelines.windows.partials import events_of, fates_of, partials_of, parts_of
from pipelines.windows.seen import KeptKeys, seen_of
from shared.config.pipeline import Pipeline
from shared.config.pipeline_tests import PipelineTest
from shared.config.steps.window import WINDOW_END, WINDOW_START
from shared.config.table import Table
from shared.event.envelope import event_headers
from shared.event.record import Origin, RecordIn
from shared.event.table_row import window_key
from shared.event.topics import stream_of, stream_topic, table_of
from shared.proof.receipt import PASSED

# The times of test events, each a second after the one before: from 2026-01-01T00:00:00Z.
_TEST_TIME_MS = 1_767_225_600_000
# A time at which all windows are over.
_FAR_MS = 10**16


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """One row that an event became."""

    origin: Origin
    outcome: str
    reason: str | None
    # The stream or table that the row goes to.
    target: str | None
    key: bytes | None
    value: bytes

    @property
    def is_of_an_event(self) -> bool:
        """Whether the row comes from one event, not from a window of several events."""
        return self.origin.partition >= 0


def given_records(pipeline: Pipeline, test: PipelineTest, partition: int) -> list[RecordIn]:
    """The events of a test, as the gateway would have stored them."""
    records = []
    times_ms = test.times_ms or [
        _TEST_TIME_MS + index * 1_000 for index, _ in enumerate(test.given)
    ]
    # They are stored in order, each at its own time or later.
    stored_ms = list(accumulate(times_ms, max))
    for offset, (event, time_ms, at_ms) in enumerate(
        zip(test.given, times_ms, stored_ms, strict=True)
    ):
        records.append(
            RecordIn(
                Origin(stream_topic(pipeline.source.stream), partition, offset),
                at_ms,
                None,
                json.dumps(event, ensure_ascii=False).encode(errors="replace"),
                event_headers(event_id=str(offset), event_time_ms=time_ms, accepted_at_ms=at_ms),
            )
        )
    return records


def given_tables(pipeline: Pipeline) -> Tables:
    """The tables that a document names, with the rows that its tests give."""
    rows: dict[str, dict[int, dict[str, str]]] = {name: {} for name in pipeline.tables_from}
    for index, test in enumerate(pipeline.tests):
        for name, theirs in test.tables.items():
            rows[name][index] = {key: json.dumps(row) for key, row in theirs.items()}
    return Tables(
        written={name: Table(name) for name in pipeline.tables_to},
        look_ups={name: GivenRows(theirs) for name, theirs in rows.items()},
    )


def came_of(
    session: SparkSession,
    pipeline: Pipeline,
    records: Iterable[RecordIn],
    streams: Partitionings = NO_SHARDS,
    tables: Tables | None = None,
) -> list[PreviewRow]:
    """Return the rows that records become, event by event; the streams are as for `planned`.

    Without `tables`, the tables have the rows from the document's tests.
    """
    if not (given := list(records)):
        return []
    known = given_tables(pipeline) if tables is None else tables
    records_read = events_frame(session, given)
    if pipeline.window is not None:
        return _counted(pipeline, records_read, known)
    rows = planned(pipeline, records_read, streams, known).collect()
    topic = stream_topic(pipeline.source.stream)
    came = [_came(topic, row) for row in sorted(rows, key=lambda row: row[:3])]
    return came if pipeline.dedupe is None else _once(pipeline, rows, came)


def events_frame(session: SparkSession, records: Iterable[RecordIn]) -> DataFrame:
    """Return records as Spark would read them from Kafka."""
    given = [
        (
            *record.origin,
            datetime.fromtimestamp(record.timestamp_ms / 1000, tz=UTC),
            record.key,
            record.value,
            list(record.headers),
        )
        for record in records
    ]
    return session.createDataFrame(given, RECORDS)


def _once(pipeline: Pipeline, rows: Sequence[Row], came: Sequence[PreviewRow]) -> list[PreviewRow]:
    """Replace the rows of each repeated event with one row, which says that it is a repeat."""
    assert pipeline.dedupe is not None, "the pipeline has a dedupe step"
    kept = KeptKeys(pipeline.dedupe, Head(pipeline.kept_shape))
    repeats = kept.changed_by(seen_of(row.asDict() for row in rows), 0).repeats
    by_origin: dict[Origin, list[PreviewRow]] = {}
    for row in came:
        by_origin.setdefault(row.origin, []).append(row)
    once: list[PreviewRow] = []
    for origin, own in by_origin.items():
        is_repeat = (origin.partition, origin.offset) in repeats
        once += [replace(own[0], outcome=FILTERED, target=None)] if is_repeat else own
    return once


def _counted(pipeline: Pipeline, records: DataFrame, tables: Tables) -> list[PreviewRow]:
    """Events that are in no window, then the rows of all windows, as if all had ended."""
    topic = stream_topic(pipeline.source.stream)
    events = events_of(pipeline, records, frontier_ms=0, look_ups=tables.look_ups)
    assert pipeline.window is not None, "the pipeline has a window"
    kept = OpenWindows(pipeline.window, Head(pipeline.kept_shape))
    parts = parts_of(pipeline, events).toArrow().to_pylist()
    fold = fold_in(records.sparkSession.sparkContext, both_ways=True)
    rows = kept.changed_by(partials_of(pipeline, parts), _FAR_MS, fold=fold).rows
    others = fates_of(pipeline, events).collect()
    came = [_came(topic, row) for row in sorted(others, key=lambda row: row[:2])]
    return came + [
        PreviewRow(
            # The row belongs to no single event: several make it.
            Origin(topic, -1, index),
            PASSED,
            None,
            name,
            window_key(row.group, row.start_ms).encode(),
            row.value,
        )
        for name in pipeline.targets
        for index, row in enumerate(rows)
    ]


def differences(pipeline: Pipeline, test: PipelineTest, came: Sequence[PreviewRow]) -> list[str]:
    """Describe, for people, how results differ from a test's expectation; empty if they agree."""
    lines: list[str] = []
    for target in pipeline.targets:
        events = [row.value for row in came if row.outcome == PASSED and row.target == target]
        expected = test.expect.get(target, ()) if isinstance(test.expect, dict) else test.expect
        lines += _unlike(f"to {target}", expected, [*map(_read, events)])
    if pipeline.sink is not None and not isinstance(test.expect, dict):
        events = [row.value for row in came if row.outcome == PASSED]
        lines += _unlike(f"to the {pipeline.sink.member}", test.expect, [*map(_read, events)])
    dead = [row for row in came if row.outcome == DEAD]
    lines += _unlike("in dead letters", test.dead, [_read(row.value) for row in dead])
    late = [row for row in came if row.outcome == LATE]
    lines += _unlike("too late", test.late, [_read(row.value) for row in late])
    if lines:
        lines += _fates(came)
    return lines


def _came(topic: str, row: Row) -> PreviewRow:
    return PreviewRow(
        origin=Origin(topic, row["partition"], row["offset"]),
        outcome=row["outcome"],
        reason=row["reason"],
        target=None if row["topic"] is None else stream_of(table_of(row["topic"])),
        key=None if row["key"] is None else bytes(row["key"]),
        value=bytes(row["value"] or b""),
    )


def _read(value: bytes) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value.decode(errors="replace")


def _unlike(where: str, expected: Sequence[Any], came: Sequence[Any]) -> list[str]:
    lines = []
    for index in range(max(len(expected), len(came))):
        wanted, got = expected[index : index + 1], came[index : index + 1]
        if not (wanted and got and is_alike(wanted[0], _asked(got[0], wanted[0]))):
            lines += [f"{where}, event {index + 1}:"]
            lines += [f"  - expected {_shown(wanted)}", f"  + got      {_shown(got)}"]
    return lines


def _asked(came: Any, expected: Any) -> Any:
    """Remove the window's times from a row, if the test does not ask for them."""
    if not isinstance(came, dict) or not isinstance(expected, dict):
        return came
    return {
        name: value
        for name, value in came.items()
        if name in expected or name not in {WINDOW_START, WINDOW_END}
    }


def _shown(events: Sequence[Any]) -> str:
    return json.dumps(events[0], ensure_ascii=False) if events else "nothing"


def _fates(came: Sequence[PreviewRow]) -> list[str]:
    """Say why events were not passed on."""
    lost = [row for row in came if row.outcome != PASSED]
    return [
        f"given {row.origin.offset + 1} was {row.outcome}"
        + (f": {row.reason}" if row.reason else "")
        for row in lost
    ]
