"""Hands a sink all events of a stream unchanged: read straight from Kafka, without a plan.

No step looks at these events, so they need no plan, which would take ten times as long for each
event as reading it. Each task reads its Kafka partitions one after another, and gives the sink's
writer the same rows that a plan would have made (ADR 0086).
"""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.jobs.outcomes import Results
from pipelines.jobs.sink import Sink, SinkAwayError, SinkWriter
from pipelines.parts.standing_back import StandingBack
from shared.event.envelope import ACCEPTED_AT, EVENT_ID, EVENT_TIME, event_id_of, time_of
from shared.event.record import KafkaPartition, Origin, Ranges
from shared.proof.log_buckets import bucket_of
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import FetchAnswer, LogClient
from shared.runtime.setup_error import KafkaUnavailableError
from shared.runtime.spark.task_jobs import TaskJobs

# Kafka may send nothing of one Kafka partition for this long.
_SILENCE_S_MAX = 30.0
_WAIT_MS = 500
_AGAIN_S = 0.2
# The job that planned the range finds out how much is gone, and continues after it.
_GONE = "{place}, no longer has the event at {at}, which is not stored yet"
# The maximum number of records that become columns at a time.
_ROWS_MAX = 10_000
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES: dict[str, pa.DataType] = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "time_ms": pa.int64(),
    "event_id": pa.string(),
    "event_time_ms": pa.int64(),
    "accepted_at_ms": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(_HEADER),
}
_SCHEMA = pa.schema(_TYPES)

_offset_of = attrgetter("offset")


class TeeTask(NamedTuple):
    """The work of one task."""

    bootstrap_servers: str
    sink: Sink
    ranges: Ranges


class TeeEnd(NamedTuple):
    """The results of one task."""

    made: Results = Results()
    reports: Sequence[str] = ()
    # Why the sink takes nothing.
    away: str = ""
    is_wrongly_set: bool = False


def run_tee(
    tees: TaskJobs[TeeEnd], bootstrap_servers: str, sink: Sink, ranges: Ranges, *, pool: str
) -> Results:
    """Return once everything is stored; raise SinkAwayError if a task's target was away."""
    places = sorted(ranges)
    parts = [places[index :: sink.tasks] for index in range(min(sink.tasks, len(places)))]
    work = [
        TeeTask(bootstrap_servers, sink, {where: ranges[where] for where in part}) for part in parts
    ]
    ends = tees.run(work, pool=pool)
    for end in ends:
        if end.away:
            raise SinkAwayError(end.away, is_wrongly_set=end.is_wrongly_set)
    some = [end.made for end in ends if end.made.passed]
    return Results(
        passed=sum(made.passed for made in some),
        event_time_ms_min=min((made.event_time_ms_min for made in some), default=0),
        accepted_at_ms_min=min((made.accepted_at_ms_min for made in some), default=0),
        event_times=sum((Counter(made.event_times) for made in some), Counter()),
        accepted_ats=sum((Counter(made.accepted_ats) for made in some), Counter()),
        records=tuple(sink.records(ranges, [*chain(*(end.reports for end in ends))])),
    )


def tee(tasks: Iterable[TeeTask]) -> Iterator[TeeEnd]:
    """Run the tasks that came to this worker."""
    for task in tasks:
        yield asyncio.run(_tee(task))


async def _tee(task: TeeTask) -> TeeEnd:
    reports, seen, pace = list[str](), _TeeCounts(), StandingBack()
    try:
        with task.sink.open(task.ranges) as writer:
            async with LogClient(task.bootstrap_servers) as log:
                await log.follow({where.topic for where in task.ranges})
                for where, (begin, end) in task.ranges.items():
                    async for records in read(log, where, begin, end):
                        reports += _taken(writer, where, records, seen)
                        await asyncio.sleep(pace.rest_s())
            reports += _reports(writer.end())
    except SinkAwayError as away:
        return TeeEnd(away=str(away), is_wrongly_set=away.is_wrongly_set)
    return TeeEnd(seen.made, reports)


def _taken(
    writer: SinkWriter, where: KafkaPartition, records: Sequence[Any], seen: "_TeeCounts"
) -> Iterator[str]:
    for at in range(0, len(records), _ROWS_MAX):
        events = columns_of(where, records[at : at + _ROWS_MAX])
        seen.see(events)
        yield from _reports(writer.take(events))


def _reports(said: Iterable[Any]) -> Iterator[str]:
    for each in said:
        assert isinstance(each, str), "a sink of unchanged events refuses none"
        yield each


async def read(
    log: LogClient, where: KafkaPartition, begin: int, end: int
) -> AsyncIterator[Sequence[Any]]:
    """Yield the records of a range in runs; the next run is fetched while one is processed."""
    at = begin
    asking = asyncio.create_task(_next(log, where, at))
    try:
        while at < end:
            answer = await asking
            at = answer.reached
            if at < end:
                asking = asyncio.create_task(_next(log, where, at))
                # Let the request go out before the records are processed.
                await asyncio.sleep(0)
            records = answer.records
            if at > end:
                records = records[: bisect_left(records, end, key=_offset_of)]
            if records:
                yield records
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError, *AWAY):
            await asking


async def _next(log: LogClient, where: KafkaPartition, at: int) -> FetchAnswer:
    """Fetch the next records; the partition's leader may be away for a while, or have changed."""
    loop = asyncio.get_running_loop()
    until_s, why = loop.time() + _SILENCE_S_MAX, "it has no leader"
    while loop.time() < until_s:
        node = log.leaders([where]).get(where)
        try:
            if node is not None:
                answer = (await log.fetch(node, {where: at}, wait_ms=_WAIT_MS))[where]
                if answer.reached > at:
                    return answer
                if answer.error is None:
                    why = "Kafka returns nothing"
                    continue
                if answer.is_gone:
                    raise SinkAwayError(_GONE.format(place=_named(where), at=at))
                why = repr(answer.error)
                if not answer.is_moved:
                    break
            await asyncio.sleep(_AGAIN_S)
            await log.ask_leaders([where.topic])
        except AWAY as error:
            why = repr(error)
            await asyncio.sleep(_AGAIN_S)
    raise KafkaUnavailableError(f"{_named(where)}, at {at}: {why}")


def _named(where: KafkaPartition) -> str:
    return f"{where.topic}, Kafka partition {where.partition}"


def columns_of(where: KafkaPartition, records: Sequence[Any]) -> pa.RecordBatch:
    """Columns as in SINK_COLUMNS, without those that only steps fill."""
    ids, event_times, accepted_ats = zip(*(_facts(where, each) for each in records), strict=True)
    columns: dict[str, Any] = {
        "partition": [where.partition] * len(records),
        "offset": [each.offset for each in records],
        "time_ms": [each.timestamp for each in records],
        "event_id": ids,
        "event_time_ms": event_times,
        "accepted_at_ms": accepted_ats,
        "key": [each.key for each in records],
        "value": [each.value for each in records],
    }
    arrays = [pa.array(column, _TYPES[name]) for name, column in columns.items()]
    return pa.RecordBatch.from_arrays([*arrays, _headers(records)], schema=_SCHEMA)


def _facts(where: KafkaPartition, record: Any) -> tuple[str, int, int]:
    """The event's id, its event time, and the time of its acceptance."""
    headers = dict(record.headers)
    return (
        event_id_of(headers.get(EVENT_ID), Origin(*where, record.offset)),
        time_of(headers.get(EVENT_TIME), otherwise=record.timestamp),
        time_of(headers.get(ACCEPTED_AT), otherwise=record.timestamp),
    )


def _headers(records: Sequence[Any]) -> pa.Array:  # type: ignore[type-arg]
    """Build headers flat, far cheaper than as dicts. A record without headers has null here."""
    flat = [pair for each in records for pair in each.headers]
    names, raws = [name for name, _ in flat], [raw for _, raw in flat]
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(raws, pa.binary())], fields=[*_HEADER]
    )
    ends = accumulate((len(each.headers) for each in records), initial=0)
    is_bare = pa.array([not each.headers for each in records], pa.bool_())
    return pa.ListArray.from_arrays(
        pa.array([*ends], pa.int32()), pairs, type=_TYPES["headers"], mask=is_bare
    )


class _Moments:
    """Times of many events, each exact to 1 % of its age."""

    def __init__(self) -> None:
        self._now_ms = now_ms()
        self._counts = Counter[int]()
        self._sums = Counter[int]()
        self.first_ms: int | None = None

    def see(self, times: Any) -> None:
        counted: Any = pc.value_counts(times)
        for at_ms, count in zip(
            counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True
        ):
            bucket = bucket_of(self._now_ms - at_ms)
            self._counts[bucket] += count
            self._sums[bucket] += at_ms * count
            self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)

    def told(self) -> dict[int, int]:
        """Return the mean time of each bucket, and its count of events."""
        counts = Counter[int]()
        for bucket, count in self._counts.items():
            counts[self._sums[bucket] // count] += count
        return dict(counts)


class _TeeCounts:
    """The figures that a task counts on the way."""

    def __init__(self) -> None:
        self._count = 0
        self._event_times, self._accepted_ats = _Moments(), _Moments()

    def see(self, events: pa.RecordBatch) -> None:
        self._count += events.num_rows
        self._event_times.see(events.column("event_time_ms"))
        self._accepted_ats.see(events.column("accepted_at_ms"))

    @property
    def made(self) -> Results:
        return Results(
            passed=self._count,
            event_time_ms_min=self._event_times.first_ms or 0,
            accepted_at_ms_min=self._accepted_ats.first_ms or 0,
            event_times=self._event_times.told(),
            accepted_ats=self._accepted_ats.told(),
        )
