"""Turns Spark's results for a pipeline into the records to store: kept state, and rows. Pure.

All of it is stored in one transaction with the position and the receipts, so the kept state always
covers exactly the events before the position, and each row is written once.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pipelines.functions.states import Fold
from pipelines.jobs.outcomes import Results
from pipelines.lanes.portions import PipelinePortion
from pipelines.parts.whole_events import DEAD
from pipelines.windows.change import Head, KeptChange, KeptPosition, WindowRow
from pipelines.windows.frontier import Frontier
from pipelines.windows.open_windows import WINDOW_BYTES_MAX, OpenWindows
from pipelines.windows.partials import partials_of
from pipelines.windows.seen import KeptKeys, seen_of
from shared.config.pipeline import Pipeline, ToStream, ToTable
from shared.config.table import Table
from shared.event.derived import VIA, window_id
from shared.event.envelope import EVENT_BYTES_MAX, event_headers
from shared.event.record import Headers, KafkaPartition
from shared.event.table_row import window_key
from shared.event.topics import kept_topic, stream_topic
from shared.proof.receipt import PASSED

Kept = OpenWindows | KeptKeys
# Topic, key, value and headers.
Stored = tuple[str, bytes | None, bytes | None, Headers]
_FILTERED = "filtered"


def kept_for(pipeline: Pipeline) -> Kept | None:
    """The state with which a pipeline begins; None if it keeps nothing."""
    if pipeline.window is not None:
        return OpenWindows(pipeline.window, Head(pipeline.kept_shape))
    if pipeline.dedupe is not None:
        return KeptKeys(pipeline.dedupe, Head(pipeline.kept_shape))
    return None


@dataclass(slots=True)
class LaneState:
    """The kept state of one pipeline, and how far all of its stream has been read."""

    tenant: str
    kept: Kept
    frontier: Frontier = field(default_factory=Frontier)
    # How far the predecessor had read: a window that is open there stays open here.
    frontier_max_ms: int | None = None

    def change(
        self,
        pipeline: Pipeline,
        portion: PipelinePortion,
        made: Results,
        places: Collection[KafkaPartition],
        *,
        room: int,
        row_bytes_max: int = EVENT_BYTES_MAX,
        fold: Fold | None = None,
    ) -> tuple[KeptChange, Results]:
        """Return a job's change of the state, and its events' outcomes with repeats filtered."""
        read = Frontier(dict(self.frontier.read_ms))
        read.read(made.stored_ms)
        read.read(portion.read_until_ms)
        until_ms = read.at_ms(places)
        if self.frontier_max_ms is not None:
            until_ms = min(until_ms, self.frontier_max_ms)
        if isinstance(self.kept, OpenWindows):
            partials = list(partials_of(pipeline, made.found))
            row_bytes_max = min(row_bytes_max, WINDOW_BYTES_MAX)
            change = self.kept.changed_by(
                partials, until_ms, room=room, row_bytes_max=row_bytes_max, fold=fold
            )
            return change, made
        change = self.kept.changed_by(seen_of(made.found), until_ms, room=room)
        return change, _without(made, change.repeats)

    def is_done(self, change: KeptChange, portion: PipelinePortion, made: Results) -> None:
        """Apply a change that is stored."""
        self.kept.apply(change)
        self.frontier.read(made.stored_ms)
        self.frontier.read(portion.read_until_ms)


# The maximum number of bytes that one tenant's pipelines, and all tenants' pipelines together, may
# keep in one process.
_TENANT_MAX, _PROCESS_MAX = 128 * 1_048_576, 384 * 1_048_576


@dataclass(slots=True)
class LaneStates:
    """The kept states of the pipelines that this process runs, by their lanes."""

    by_lane: dict[str, LaneState] = field(default_factory=dict)

    def room_of(self, lane_id: str) -> int:
        """Return how many more bytes a pipeline may keep.

        It may use all bytes that nobody uses; if its tenant has an unused share that is larger, it
        may use that. So while there is room, new pipelines do not cause the refusal of others.
        """
        tenant = self.by_lane[lane_id].tenant
        used: Counter[str] = Counter()
        # This runs in a thread, and the loop may remove lanes meanwhile.
        for keeper in list(self.by_lane.values()):
            used[keeper.tenant] += keeper.kept.size
        left = max(_PROCESS_MAX - used.total(), _PROCESS_MAX // len(used) - used[tenant])
        return min(_TENANT_MAX - used[tenant], left)


def placed(pipeline: Pipeline, position: KeptPosition) -> Stored:
    """Return the record of this position: the kept state covers all events before it."""
    topic = kept_topic(pipeline.name, pipeline.generation)
    return topic, *position.record, ()


def stored_of(
    pipeline: Pipeline,
    change: KeptChange,
    made: Results,
    tables: Mapping[str, Table],
    head: Head,
) -> Iterator[Stored]:
    """Yield all records of a change, in order."""
    topic = kept_topic(pipeline.name, pipeline.generation)
    for key, value in change.records:
        yield topic, key, value, ()
    late_ms = pipeline.window.late_ms if pipeline.window else 0
    for row in change.rows:
        yield from _row(pipeline, row, tables, is_told=row.end_ms + late_ms > head.quiet_ms)
    if pipeline.dedupe is not None:
        for event in made.found:
            is_told = not head.is_quiet or event["outcome"] == DEAD
            is_new = event["topic"] is not None and _place(event) not in change.repeats
            if is_told and is_new:
                headers = tuple((each["key"], each["value"]) for each in event["headers"])
                yield event["topic"], event["key"], event["value"], headers


def _row(
    pipeline: Pipeline, row: WindowRow, tables: Mapping[str, Table], *, is_told: bool
) -> Iterator[Stored]:
    name = window_key(row.group, row.start_ms)
    key = name.encode()
    for output in pipeline.to:
        if isinstance(output, ToTable):
            yield tables[output.table].topic, key, row.value, ()
        elif isinstance(output, ToStream) and not output.late and is_told:
            event_id = window_id(pipeline.name, pipeline.generation, name, row.version)
            headers = event_headers(
                event_id=event_id,
                event_time_ms=row.event_time_ms,
                accepted_at_ms=row.accepted_at_ms,
            )
            via = (VIA, pipeline.name.encode())
            yield stream_topic(output.stream), key, row.value, (*headers, via)


def _place(event: Mapping[str, int]) -> tuple[int, int]:
    return event["partition"], event["offset"]


def _without(made: Results, repeats: Collection[tuple[int, int]]) -> Results:
    """Count events that are repeats as filtered, however long ago the first of each came."""
    again = [
        event
        for event in made.found
        if event["nth"] == 0 and event["outcome"] == PASSED and _place(event) in repeats
    ]
    if not again:
        return made
    minutes = dict(made.not_passed.get(_FILTERED, {}))
    for event in again:
        minute = event["minute_ms"]
        minutes[minute] = minutes.get(minute, 0) + 1
    return replace(
        made,
        passed=made.passed - len(again),
        not_passed={**made.not_passed, _FILTERED: minutes},
    )
