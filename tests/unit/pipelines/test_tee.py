"""Events that no step looks at go straight to a sink: all of a range, each once, in order."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pytest

from pipelines.jobs import tee as tee_module
from pipelines.jobs.outcomes import Results
from pipelines.jobs.sink import SinkAwayError
from pipelines.jobs.tee import TeeEnd, TeeTask, columns_of, read, run_tee, tee
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition, Origin, Ranges, RecordIn, RecordOut
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.delivery.fetched_rows import decoded
from tests.support.delivery.memory_log import NODE, MemoryLog

TOPIC = "hifi.stream.orders"
WHERE, OTHER = KafkaPartition(TOPIC, 0), KafkaPartition(TOPIC, 1)
AT_MS = 1_767_225_600_000


class OneLog(MemoryLog):
    """The one log that every caller gets."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End nothing."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> OneLog:
    one = OneLog()
    one.make(TOPIC, 2)
    monkeypatch.setattr(tee_module, "LogClient", lambda _: one)
    monkeypatch.setattr(tee_module, "_AGAIN_S", 0.01)
    monkeypatch.setattr(tee_module, "_WAIT_MS", 5)
    return one


@dataclass
class StoringSink:
    """A sink that keeps the events it gets."""

    away: str = ""
    tasks: int = 2
    taken: list[tuple[int, int]] = field(default_factory=list)

    @contextmanager
    def open(self, _: Ranges) -> Iterator["StoringSink"]:
        yield self

    def take(self, events: pa.RecordBatch) -> Iterable[str]:
        if self.away:
            raise SinkAwayError(self.away, is_wrongly_set=True)
        self.taken += [(row["partition"], row["offset"]) for row in events.to_pylist()]
        yield f"{events.num_rows} taken"

    def end(self) -> Iterable[str]:
        yield "over"

    def records(self, _: Ranges, reports: Sequence[str]) -> Iterable[RecordOut]:
        return [RecordOut("told", None, report.encode()) for report in reports]


def a_record(where: KafkaPartition, offset: int, **more: Any) -> RecordIn:
    ours = event_headers(
        event_id=f"e-{offset}", event_time_ms=AT_MS - 60_000 * offset, accepted_at_ms=AT_MS
    )
    told: dict[str, Any] = {"timestamp_ms": AT_MS + 1, "key": b"k", "value": b"{}", "headers": ours}
    return RecordIn(origin=Origin(*where, offset), **(told | more))


def done(log: OneLog, sink: StoringSink, ranges: Ranges) -> TeeEnd:
    assert log.logs.keys() >= ranges.keys()
    (end,) = tee([TeeTask("kafka", sink, ranges)])
    return end


def test_all_of_each_range_is_handed_over_and_nothing_beside(log: OneLog) -> None:
    # Missing offsets in between are Kafka's own markers.
    log.write(a_record(WHERE, offset) for offset in (3, 4, 6, 7, 9))
    log.write(a_record(OTHER, offset) for offset in (0, 1))
    sink = StoringSink()
    end = done(log, sink, {WHERE: (4, 9), OTHER: (0, 2)})
    assert sink.taken == [(0, 4), (0, 6), (0, 7), (1, 0), (1, 1)]
    assert (end.made.passed, [*end.reports]) == (5, ["3 taken", "2 taken", "over"])
    assert (end.made.event_time_ms_min, end.made.accepted_at_ms_min) == (AT_MS - 420_000, AT_MS)
    assert sum(end.made.event_times.values()) == sum(end.made.accepted_ats.values()) == 5


def test_a_range_of_nothing_but_markers_is_done(log: OneLog) -> None:
    log.write([a_record(WHERE, 0), a_record(WHERE, 5)])
    sink = StoringSink()
    assert done(log, sink, {WHERE: (2, 4)}) == TeeEnd(Results(), ["over"])
    assert sink.taken == []


def test_a_sink_that_is_away_is_told_in_words(log: OneLog) -> None:
    log.write([a_record(WHERE, 0)])
    end = done(log, StoringSink("nobody is there"), {WHERE: (0, 1)})
    assert end == TeeEnd(away="nobody is there", is_wrongly_set=True)


def test_a_leader_that_moves_is_looked_for(log: OneLog) -> None:
    log.write(a_record(WHERE, offset) for offset in range(3))
    log.leaderless.add(WHERE)

    async def run() -> list[int]:
        asyncio.get_running_loop().call_later(0.05, log.leaderless.clear)
        return [each.offset async for some in read(log, WHERE, 0, 3) for each in some]

    assert asyncio.run(run()) == [0, 1, 2]
    log.leader = NODE + 1
    assert asyncio.run(run()) == [0, 1, 2]


def test_what_kafka_has_deleted_before_it_was_kept_is_told(log: OneLog) -> None:
    log.write(a_record(WHERE, offset) for offset in range(3))
    log.forget(WHERE, 2)
    end = done(log, StoringSink(), {WHERE: (0, 3)})
    assert end.away.startswith(f"{TOPIC}, Kafka partition 0, no longer has the event at 0")


@pytest.mark.parametrize("harm", ["silent", "leaderless"])
def test_what_nobody_has_is_told_with_its_place(
    log: OneLog, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(a_record(WHERE, offset) for offset in range(3))
    monkeypatch.setattr(tee_module, "_SILENCE_S_MAX", 0.05)
    if harm == "leaderless":
        log.leaderless.add(WHERE)
    with pytest.raises(KafkaUnavailableError, match=r"orders, Kafka partition 0, at"):
        done(log, StoringSink(), {WHERE: (0, 9)})


def test_what_is_told_of_an_event_is_what_its_headers_say() -> None:
    twice = (("event-id", b"first"), ("event-id", b"last"), ("event-time-ms", b"not a time"))
    records = [a_record(WHERE, 0, headers=twice), a_record(WHERE, 1, headers=(), key=None)]
    rows = columns_of(WHERE, [decoded(each) for each in records]).to_pylist()
    assert [row["event_id"] for row in rows] == ["last", f"{TOPIC}:0:1"]
    assert [row["event_time_ms"] for row in rows] == [AT_MS + 1] * 2
    assert rows[0]["headers"] == [{"key": name, "value": raw} for name, raw in twice]
    assert (rows[1]["headers"], rows[1]["key"]) == (None, None)


class Tasks:
    """Jobs like `TaskJobs`, in this process."""

    def run(self, tasks: Sequence[TeeTask], *, pool: str) -> list[TeeEnd]:
        assert pool == "p"
        return [*tee(tasks)]


def test_a_job_comes_to_what_its_tasks_have_done(log: OneLog) -> None:
    log.write([a_record(WHERE, 0), a_record(OTHER, 1), a_record(OTHER, 2)])
    sink = StoringSink()
    ranges = {WHERE: (0, 1), OTHER: (1, 3)}
    made = run_tee(Tasks(), "kafka", sink, ranges, pool="p")  # type: ignore[arg-type]
    assert (made.passed, made.event_time_ms_min) == (3, AT_MS - 120_000)
    assert sum(made.event_times.values()) == 3
    assert sum(each.value == b"over" for each in made.records) == 2, "one such record for each task"
    with pytest.raises(SinkAwayError, match="nobody"):
        run_tee(Tasks(), "kafka", StoringSink("nobody"), ranges, pool="p")  # type: ignore[arg-type]
