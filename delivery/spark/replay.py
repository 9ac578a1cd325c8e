"""Sends a span of a stream to a destination once more, beside its live lane.

In slices: each is one bounded Spark job of the shape of a lane, and a file says how far it got,
so that a replay which is stopped goes on where it was, and one that is done is not done again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delivery.deliver import deliver
from delivery.sending import Plan
from delivery.settings import DeliverySettings
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Position, Ranges
from shared.runtime.kafka.spark_options import range_options, sink_options, starting_offsets
from shared.runtime.setup_error import UsageError
from shared.runtime.spark.arrow_rows import COLUMNS_IN, SCHEMA_OUT, records_of
from shared.runtime.spark.session import map_arrow
from shared.runtime.spark.task_tries import is_another_try

# A replay may take its time: what its rate lets wait is waited for, and not parked.
_TIME_BOX_S = 3_600.0
NO_EDGES: Mapping[KafkaPartition, Sequence[int]] = {}


@dataclass(frozen=True, slots=True)
class ReplaySpan:
    """What is to go to which destination again."""

    replay_id: str
    destination: Destination
    start: Position
    end: Position
    key: bytes | None = None
    # What Kafka has no more, and where each part of that ends; the last is where its log begins.
    kept: Callable[[Ranges], pa.Table] | None = None
    edges: Mapping[KafkaPartition, Sequence[int]] = field(default_factory=dict)

    @property
    def event_count(self) -> int:
        """Events between start and end, whatever their keys."""
        return sum(end - self.start[where] for where, end in self.end.items())

    @property
    def fingerprint(self) -> str:
        """What was asked for; the same id must not mean something else later."""
        ends = (starting_offsets(self.start), starting_offsets(self.end))
        key = None if self.key is None else self.key.hex()
        return json.dumps([self.destination.id, *ends, key])


def replay(spark: SparkSession, wanted: ReplaySpan, settings: DeliverySettings) -> Iterator[int]:
    """Send what has not been sent yet under this id; the events behind us, after each slice."""
    book = settings.folder / "replays" / f"{wanted.replay_id}.json"
    at, begun = kept_position(book, wanted)
    while (upto := _upto(wanted, at, settings)) != at:
        # Beforehand: a run that is cut off may have sent all of its slice.
        _keep(book, wanted, at, begun=upto)
        _send(spark, wanted, at, upto, settings, maybe_sent=begun)
        _keep(book, wanted, upto, begun=upto)
        at = upto
        yield sum(offset - wanted.start[where] for where, offset in at.items())


def count_matching(spark: SparkSession, wanted: ReplaySpan, settings: DeliverySettings) -> int:
    """How many events of the span have the key; reads them all."""
    if wanted.kept is None:
        return _rows(spark, wanted, wanted.start, wanted.end, settings).count()
    at, count = wanted.start, 0
    while (upto := _upto(wanted, at, settings)) != at:
        count += _rows(spark, wanted, at, upto, settings).count()
        at = upto
    return count


def _upto(wanted: ReplaySpan, at: Position, settings: DeliverySettings) -> Position:
    return next_slice(at, wanted.end, settings.micro_batch_events_max, wanted.edges)


def next_slice(
    at: Position,
    end: Position,
    events_max: int,
    edges: Mapping[KafkaPartition, Sequence[int]] = NO_EDGES,
) -> Position:
    """How far the next job goes: an equal share of each Kafka partition, and never past the end.

    Nor past an edge: what lies on both of its sides comes from different places.
    """
    share = max(1, events_max // max(1, len(end)))
    upto = {where: min(at[where] + share, offset) for where, offset in end.items()}
    for where, places in edges.items():
        if where in upto and (beyond := [each for each in places if each > at[where]]):
            upto[where] = min(upto[where], *beyond)
    return upto


def kept_position(book: Path, wanted: ReplaySpan) -> tuple[Position, Position]:
    """Where an earlier run under this id got to, or the start; and how far it may have sent."""
    if not book.exists():
        return wanted.start, wanted.start
    kept = json.loads(book.read_text())
    if kept["fingerprint"] != wanted.fingerprint:
        raise UsageError(
            f"The replay {wanted.replay_id} was another span, destination or key ({book}):"
            " choose another --id."
        )
    at, begun = (
        {KafkaPartition(topic, partition): offset for topic, partition, offset in kept[name]}
        for name in ("at", "begun")
    )
    return at, begun


def _keep(book: Path, wanted: ReplaySpan, at: Position, *, begun: Position) -> None:
    """Written by rename: a crash leaves the old position or the new one."""
    book.parent.mkdir(parents=True, exist_ok=True)
    draft = book.with_suffix(".new")
    at_rows, begun_rows = ([[*where, offset] for where, offset in p.items()] for p in (at, begun))
    kept = {"fingerprint": wanted.fingerprint, "at": at_rows, "begun": begun_rows}
    draft.write_text(json.dumps(kept))
    draft.replace(book)


def _send(
    spark: SparkSession,
    wanted: ReplaySpan,
    at: Position,
    upto: Position,
    settings: DeliverySettings,
    *,
    maybe_sent: Position,
) -> None:
    to = wanted.destination
    plan = Plan(
        reads="stream",
        destinations={to.id: to},
        schedule=settings.schedule,
        time_box_s=_TIME_BOX_S,
        allows_private=settings.allow_private,
        # What it learns of the destination's moods is not the live lane's business.
        flow_folder=settings.folder.absolute() / "replays" / "flows",
        replay_id=wanted.replay_id,
        replay_until=maybe_sent,
    )
    rows = _rows(spark, wanted, at, upto, settings)
    outcomes = map_arrow(rows, partial(_deliver_rows, plan=plan), SCHEMA_OUT)
    sink = sink_options(settings.bootstrap_servers, name=f"replay-{wanted.replay_id}")
    # Returns when every outcome is stored.
    outcomes.write.format("kafka").options(**sink).save()


def _rows(
    spark: SparkSession,
    wanted: ReplaySpan,
    at: Position,
    upto: Position,
    settings: DeliverySettings,
) -> DataFrame:
    ranges = {where: (at[where], end) for where, end in upto.items()}
    gone = {where for where, edges in wanted.edges.items() if at[where] < edges[-1]}
    in_log = {where: span for where, span in ranges.items() if where not in gone}
    options = range_options(settings.bootstrap_servers, in_log)
    rows = spark.read.format("kafka").options(**options).load().select(*COLUMNS_IN)
    if wanted.kept is not None and gone:
        # In one task, as its order is one.
        kept = wanted.kept({where: ranges[where] for where in gone})
        earlier = spark.createDataFrame(kept).coalesce(1)
        rows = earlier.union(rows) if in_log else earlier
    return rows if wanted.key is None else rows.where(f"key = X'{wanted.key.hex()}'")


def _deliver_rows(batches: Iterable[pa.RecordBatch], *, plan: Plan) -> Iterator[pa.RecordBatch]:
    """`deliver`, with what only the moment of the task can tell."""
    rows = (list(records_of(batch)) for batch in batches)
    yield from deliver(rows, plan, is_again=is_another_try())
