"""Tries pipelines out on this machine, with the Spark that would run them; nothing is written."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.cli.printing import harmless, out, talk
from pipelines.functions.installed import installed
from pipelines.judging.judge import Typed, UnfitError, tried, typed
from pipelines.judging.trial import Came, came_of
from pipelines.session import trial_session
from pipelines.shards import NO_SHARDS, Partitionings, partitionings
from pipelines.tables.look_ups import NO_TABLES, GivenRows, Tables
from shared.config.outside.call import Call
from shared.config.pipeline import (
    Enrich,
    Explode,
    Key,
    Output,
    Pipeline,
    Select,
    ToArchive,
    ToDatabase,
    ToDead,
    ToStream,
    ToTable,
    Where,
)
from shared.config.steps.window import Dedupe, WindowStep
from shared.config.table import Table
from shared.event.record import RecordIn
from shared.event.topics import stream_topic
from shared.runtime.files.document_text import Document
from shared.runtime.kafka.config_topic import ConfigFeed, read_config
from shared.runtime.kafka.reader import open_reader
from shared.runtime.setup_error import NotFoundError, SetupError, UsageError

# Of one event so much is shown.
_SHOWN_CHARS = 300
# Of a table in a trial, which has them all in memory.
_ROWS_MAX = 100_000


@contextmanager
def spark_for_trials() -> Iterator[Any]:
    """A Spark session of our own, for as long as the block lasts."""
    talk.print("Starting Spark ...", style="dim")
    with (
        tempfile.TemporaryDirectory(prefix="hifi-pipelines-") as folder,
        trial_session(Path(folder)) as session,
    ):
        yield session


def checked(session: Any, document: Document, pipeline: Pipeline) -> None:
    """Say what each step makes, and run the document's tests; UsageError if it would not run."""
    try:
        for step in typed(session, pipeline, installed().keys()):
            out.print(harmless(_line(step)))
        out.print(harmless(_outputs(pipeline)))
        tried(session, pipeline)
    except UnfitError as error:
        why, *more = error.refusal.why.split("\n")
        lines = [f"{document.place(error.refusal.pointer)}: {why}", *more]
        raise UsageError("\n".join(map(harmless, lines))) from error


async def last_events(kafka: str, stream: str, count: int) -> list[RecordIn]:
    """The newest events of a stream, in the order of its Kafka partitions."""
    topic = stream_topic(stream)
    async with open_reader(kafka) as reader:
        spans = await reader.spans([topic])
        if not spans:
            raise NotFoundError(f"There is no stream {stream}: `hifi streams list` lists them.")
        # They may all be in one of them.
        ranges = {where: (max(first, end - count), end) for where, (first, end) in spans.items()}
        records = [record async for record in reader.range(ranges).records()]
    records.sort(key=lambda record: record.timestamp_ms)
    return sorted(records[-count:], key=lambda record: record.origin)


async def last_rows(kafka: str, pipeline: Pipeline) -> Tables:
    """The tables that a pipeline names, with the rows that they have now."""
    if not pipeline.tables:
        return NO_TABLES
    known = (await read_config(kafka)).tables
    look_ups = {}
    for name in sorted(pipeline.tables_from):
        if name not in known:
            raise NotFoundError(f"There is no table {name}: `hifi tables list` lists them.")
        look_ups[name] = GivenRows({-1: await _rows_of(kafka, known[name])})
    return Tables(
        written={name: known.get(name, Table(name)) for name in pipeline.tables_to},
        look_ups=look_ups,
    )


async def _rows_of(kafka: str, table: Table) -> dict[str, str]:
    rows: dict[str, str] = {}
    async with open_reader(kafka) as reader:
        async for record in reader.range(await reader.spans([table.topic])).records():
            key = (record.key or b"").decode(errors="replace")
            rows.pop(key, None)
            if record.value:
                rows[key] = record.value.decode(errors="replace")
            if len(rows) > _ROWS_MAX:
                detail = f"The table {table.name} has more than {_ROWS_MAX:,} rows"
                raise UsageError(f"{detail}: too many for a trial on this machine.")
    return rows


async def shards_of(kafka: str, pipeline: Pipeline) -> Partitionings:
    """How the streams that it writes to lay their events, of those that are set up."""
    feed = ConfigFeed(kafka)
    try:
        await feed.start()
    except SetupError:
        return NO_SHARDS
    await feed.stop()
    return partitionings(pipeline, feed.configuration)


def show_trial(
    session: Any,
    pipeline: Pipeline,
    records: Sequence[RecordIn],
    streams: Partitionings,
    tables: Tables,
) -> None:
    """What comes of these events, row by row, and how many of each."""
    came = came_of(session, pipeline, records, streams, tables)
    for row in came:
        out.print(harmless(_row(row)))
    fates = {row.origin: row.outcome for row in came if row.is_of_an_event}
    # What was counted has no row of its own.
    counts = Counter({"passed": len(records) - len(fates)}) + Counter(fates.values())
    late = f" {counts['late']:,} late," if pipeline.window else ""
    talk.print(
        f"{len(records):,} events: {counts['passed']:,} passed, {counts['filtered']:,} filtered,"
        f"{late} {counts['dead']:,} dead. Nothing was written."
    )


def _line(typed_step: Typed) -> str:
    """A step, and what an event has after it."""
    match typed_step.step:
        case Where(where=text) | Key(key=text):
            return f"{typed_step.step.member:9}{text}"
        case Call(call=name):
            return f"call     {name}: " + ", ".join(map(" ".join, typed_step.members))
        case Explode():
            ((name, text),) = typed_step.step.explode.items()
            return f"explode  {name} {dict(typed_step.members)[name]}  of {text}"
        case Enrich(enrich=asked):
            kind = dict(typed_step.members)[asked.into]
            return f"enrich   {asked.into} {kind}  of {asked.table} by {asked.key}"
        case Dedupe(dedupe=once):
            return f"dedupe   {once.key}  within {once.within}"
        case (WindowStep() | Select()) as made:
            members = ", ".join(f"{name} {kind}" for name, kind in typed_step.members)
            return f"{made.member:9}{members}"


def _outputs(pipeline: Pipeline) -> str:
    parts = [_target(output) for output in pipeline.to]
    return "to       " + (", else " if pipeline.takes_first else ", ").join(parts)


def _target(output: Output) -> str:
    match output:
        case ToStream():
            name, is_late = output.stream, output.late
        case ToTable():
            name, is_late = f"table {output.table}", False
        case ToDatabase():
            name, is_late = f"database {output.database.table}", False
        case ToDead():
            name, is_late = "dead letters", output.late
        case ToArchive():
            return f"archive {output.archive}"
    if is_late:
        return f"{name} what is late"
    return f"{name} when {output.when}" if output.when else name


def _row(row: Came) -> str:
    place = f"{row.origin.partition}:{row.origin.offset}" if row.is_of_an_event else "window"
    where = row.target or row.outcome + (f" ({row.reason})" if row.reason else "")
    key = "" if row.key is None else f"  key={row.key.decode(errors='replace')}"
    text = row.value.decode(errors="replace")
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    return f"{place}  {where}{key}  {shown}".rstrip()
