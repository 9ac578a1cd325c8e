"""The course of a job: the announcement before, the records stored after, the effect of a fault."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipelines.jobs import runner as runner_module
from pipelines.jobs.job import STEP_FAILED, JobFailedError, JobLateError, Task
from pipelines.jobs.losses import Losses
from pipelines.jobs.outcomes import Results
from pipelines.jobs.runner import JobRunner
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.portions import PlannedJob
from pipelines.metrics import PipelineMetrics
from pipelines.parts.blame import ExecutorEndedError
from pipelines.settings import PipelinesSettings
from pipelines.writer import Reaches
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Position, RecordOut
from shared.event.topics import DEAD, RECEIPTS, lane_group
from shared.proof.archived import Laid
from shared.proof.receipt import ReceiptOutcome, receipts_of
from shared.runtime.archive.archived_log import Piece
from shared.runtime.kafka.leases.fenced_positions import Reach
from shared.runtime.kafka.log_client import FetchAnswer
from tests.support.pipelines.archive_made import kept, row, sink_of

WHERE = KafkaPartition("hifi.stream.s", 0)


def document(name: str) -> Pipeline:
    return Pipeline.of({"name": name, "from": {"stream": "s"}, "to": [{"stream": "t"}]})


@dataclass
class KeptWriters:
    """Writers like `SlotWriters`, one for each pipeline, that keep the rows they get."""

    broken: set[str] = field(default_factory=set)
    said: list[tuple[str, list[RecordOut], Reaches]] = field(default_factory=list)
    _name: str = ""

    def of(self, pipeline: str) -> "KeptWriters":
        return KeptWriters(self.broken, self.said, pipeline)

    async def store(self, rows: Iterable[RecordOut], reaches: Reaches, _: object = ()) -> None:
        if self._name in self.broken:
            raise TimeoutError("Kafka does not answer")
        self.said.append((self._name, list(rows), reaches))


class NoSpark:
    trouble = ""

    @property
    def watch(self) -> "NoSpark":
        return self

    def trouble_since(self, at_ms: int) -> str:
        assert at_ms
        return self.trouble

    async def wait_for_executor(self) -> None:
        """Return at once: the executor is there."""

    async def get(self) -> None:
        """Return nothing: no test looks at the session of a job."""


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp: int = 7
    key: bytes | None = b"k"
    value: bytes = b'{"n":1}'
    headers: Sequence[tuple[str, bytes]] = (("event-id", b"e"),)


@dataclass
class OneLog:
    start: int = 0

    async def starts(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, int]:
        return dict.fromkeys(places, self.start)

    def leaders(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, int]:
        return dict.fromkeys(places, 1)

    async def fetch(
        self, _: int, position: Position, *, wait_ms: int
    ) -> dict[KafkaPartition, FetchAnswer]:
        assert wait_ms
        return {it: FetchAnswer([Record(at)], at + 1) for it, at in position.items()}


@dataclass
class Ground:
    book: PipelineBook
    writers: KeptWriters
    runner: JobRunner
    log: OneLog
    lost: list[tuple[str, int, str]]

    @classmethod
    def of(cls, *names: str, end: int) -> "Ground":
        book = PipelineBook(events_max=100, time_box_s=5, own_jobs_max=2)
        for name in names:
            book.enter(document(name).lane_id, "t", {WHERE: Reach(0, 0)})
            book.lanes[document(name).lane_id].is_apart = False
        book.see_ends({WHERE: end})
        writers: Any = KeptWriters()
        spark: Any = NoSpark()
        log: Any = OneLog()
        settings = PipelinesSettings()
        metrics = PipelineMetrics()
        lost: list[tuple[str, int, str]] = []
        losses = Losses(log, book, writers, metrics, lambda *told: lost.append(told))
        runner = JobRunner(spark, settings, metrics, book, writers, losses, {})
        return cls(book, writers, runner, log, lost)

    def run(self) -> PlannedJob:
        (job,) = self.run_all()
        return job

    def run_all(self) -> list[PlannedJob]:
        jobs = self.book.plan(0.0)
        for job in jobs:
            self._run(job)
        return jobs

    def _run(self, job: PlannedJob) -> None:
        names = [portion.lane_id.rpartition(":")[2] for portion in job.portions]
        work = [Task(document(name), it) for name, it in zip(names, job.portions, strict=True)]
        asyncio.run(self.runner.run(job, work))
        self.book.over(job)

    def rested(self) -> None:
        for lane in self.book.lanes.values():
            lane.not_before_s = 0.0

    def reach(self, name: str) -> Reach:
        return self.book.lanes[document(name).lane_id].reaches[WHERE]


def told(name: str, *reach: int) -> Reaches:
    return {lane_group(document(name).lane_id): {WHERE: Reach(*reach)}}


def test_what_may_be_written_is_said_first_and_receipts_go_with_the_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("a", end=10)
    seen: list[Any] = []

    def job(_: object, __: object, tasks: Sequence[Task], **___: object) -> list[Results]:
        seen.extend(ground.writers.said)
        return [Results(7, {"filtered": {0: 3}}) for _ in tasks]

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    assert seen == [("a", [], told("a", 0, 10))]
    (name, rows, reaches) = ground.writers.said[1]
    assert (name, reaches) == ("a", told("a", 10, 10))
    assert [row.topic for row in rows] == [RECEIPTS]
    assert ground.reach("a") == Reach(10, 10)


@pytest.mark.parametrize("is_late", [False, True])
def test_who_cannot_be_written_for_is_tried_again_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
    is_late: bool,  # noqa: FBT001 - from the table
) -> None:
    ground = Ground.of("bad", "good", end=10)
    ran: list[list[str]] = []

    def job(_: object, __: object, tasks: Sequence[Task], **___: object) -> list[Results]:
        ran.append([task.pipeline.name for task in tasks])
        ground.writers.broken.add("bad")
        return [Results(10) for _ in tasks]

    monkeypatch.setattr(runner_module, "run_job", job)
    if not is_late:
        ground.writers.broken.add("bad")
    ground.run()
    assert ran == [["bad", "good"] if is_late else ["good"]]
    assert ground.reach("good") == Reach(10, 10)
    # Nobody knows whether the job's rows were written: they count as repeats when written again.
    assert ground.reach("bad") == Reach(0, 10)


def test_the_event_that_cannot_be_worked_on_rests_with_its_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("a", end=1)

    def job(*_: object, **__: object) -> list[Results]:
        raise JobFailedError("[DIVIDE_BY_ZERO] Division by zero")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    _, rows, reaches = ground.writers.said[-1]
    assert reaches == told("a", 1, 1)
    by_topic = {row.topic: row for row in rows}
    assert by_topic.keys() == {RECEIPTS, DEAD}
    headers = dict(by_topic[DEAD].headers)
    assert headers["reason"] == STEP_FAILED.encode()
    assert b"DIVIDE_BY_ZERO" in headers["last-detail"]
    (receipt,) = receipts_of(by_topic[RECEIPTS].value)
    assert receipt is not None
    assert (receipt.outcome, receipt.reason) == (ReceiptOutcome.DEAD, STEP_FAILED)
    assert ground.reach("a") == Reach(1, 1)


def test_more_than_one_event_that_fails_is_cut_and_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("a", end=10)

    def job(*_: object, **__: object) -> list[Results]:
        raise JobFailedError("[DIVIDE_BY_ZERO] Division by zero")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    assert len(ground.writers.said) == 1
    (again,) = ground.book.plan(0.0)
    assert again.portions[0].ranges == {WHERE: (0, 5)}


def test_whatever_else_goes_wrong_is_tried_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground.of("a", end=10)

    def job(*_: object, **__: object) -> list[Results]:
        raise OSError("the JVM is gone")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    (again,) = ground.book.plan(time.monotonic())
    assert again.portions[0].ranges == {WHERE: (0, 10)}
    assert again.portions[0].repeats == {WHERE: 10}


def test_what_kafka_has_deleted_is_passed_by_and_nothing_is_blamed_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("a", end=10)
    ground.log.start = 7

    def job(*_: object, **__: object) -> list[Results]:
        raise JobFailedError("there is nothing at 0")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    assert ground.lost == [("a", 7, "0 to 6 of Kafka partition 0")]
    (_, (owed,), reaches) = ground.writers.said[-1]
    (receipt,) = receipts_of(owed.value)
    assert receipt is not None
    assert (receipt.covered, receipt.event_count) == (((*WHERE, 0, 0),), 0)
    assert reaches == told("a", 7, 10)
    assert ground.reach("a") == Reach(7, 10)
    (again,) = ground.book.plan(0.0)
    assert again.portions[0].ranges == {WHERE: (7, 10)}


def test_what_is_gone_is_not_passed_by_before_kafka_has_been_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("a", end=10)
    ground.log.start = 7

    def job(*_: object, **__: object) -> list[Results]:
        ground.writers.broken.add("a")
        raise JobFailedError("there is nothing at 0")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    assert (ground.lost, ground.reach("a")) == ([], Reach(0, 10))


def test_what_kafka_has_deleted_is_looked_for_where_there_is_an_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("a", end=10)
    ground.log.start = 7
    ground.runner.losses.is_archived = lambda _: True

    def job(*_: object, **__: object) -> list[Results]:
        raise JobFailedError("there is nothing at 0")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    assert (ground.lost, ground.reach("a").at) == ([], 0)
    assert ground.book.lanes[document("a").lane_id].earlier.unknown({WHERE: 0}) == {WHERE: 0}
    assert ground.book.plan(time.monotonic()) == [], "the archive has not been listed yet"


@pytest.mark.parametrize("is_away", [False, True])
def test_an_event_out_of_an_archive_that_cannot_be_worked_on_rests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_away: bool
) -> None:
    ground = Ground.of("a", end=13)
    sink = sink_of(tmp_path)
    (said,) = kept(sink, row(0, 12), ranges={WHERE: (0, 13)})
    lane = ground.book.lanes[document("a").lane_id]
    lane.reaches[WHERE] = Reach(12, 12)
    lane.earlier.hide({WHERE: 13})
    lane.earlier.found(WHERE, Piece(sink.store, sink.folders, (Laid(said, 0),)))
    if is_away:
        (tmp_path / said.path).unlink()

    def job(*_: object, **__: object) -> list[Results]:
        raise JobFailedError("[DIVIDE_BY_ZERO] Division by zero")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    if is_away:
        # A missing object is not the event's fault.
        assert (ground.reach("a"), lane.deaths) == (Reach(12, 13), 1)
        return
    _, (_, letter), _ = ground.writers.said[-1]
    assert (letter.topic, letter.value) == (DEAD, b"{}")
    assert b"DIVIDE_BY_ZERO" in dict(letter.headers)["last-detail"]
    assert ground.reach("a") == Reach(13, 13)


def test_who_ends_an_executor_among_others_is_to_blame_only_if_it_does_so_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("bad", "good", end=1)
    ran: list[list[str]] = []

    def job(_: object, __: object, tasks: Sequence[Task], **___: object) -> list[Results]:
        ran.append([task.pipeline.name for task in tasks])
        if ran[-1] != ["good"]:
            raise ExecutorEndedError("it has ended")
        return [Results(1) for _ in tasks]

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    assert ground.writers.said == [("bad", [], told("bad", 0, 1)), ("good", [], told("good", 0, 1))]
    ground.rested()
    ground.run_all()
    assert ran == [["bad", "good"], ["bad"], ["good"]]
    assert ground.reach("good") == Reach(1, 1)
    (rows,) = [rows for name, rows, reach in ground.writers.said if reach == told("bad", 1, 1)]
    assert {row.topic for row in rows} == {RECEIPTS, DEAD}
    lanes = [ground.book.lanes[document(name).lane_id] for name in ("bad", "good")]
    assert [lane.offences for lane in lanes] == [1, 0]
    assert lanes[0].not_before_s > 0 > lanes[1].not_before_s


def test_an_event_of_an_offender_that_merely_fails_does_not_end_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = Ground.of("a", end=16)
    lane = ground.book.lanes[document("a").lane_id]
    faults = iter([ExecutorEndedError("it has ended")] * 2 + [JobFailedError("division by zero")])

    def job(*_: object, **__: object) -> list[Results]:
        raise next(faults, JobFailedError("division by zero"))

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    ground.rested()
    ground.run()
    assert (lane.guilty_to, lane.cut_to) == ({WHERE: 16}, {WHERE: 2})
    for _ in range(2):
        ground.rested()
        ground.run()
    assert ground.reach("a").at == 1, "the first event is a dead letter"
    assert (lane.guilty_to, lane.is_suspect) == ({WHERE: 16}, True)


@pytest.mark.parametrize("trouble", ["", "an executor has ended meanwhile"])
def test_who_is_late_through_others_is_tried_alone_and_not_cut(
    monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    ground = Ground.of("a", end=10)
    ground.runner.spark.trouble = trouble  # type: ignore[attr-defined]

    def job(*_: object, **__: object) -> list[Results]:
        raise JobLateError("it took longer than 60 s")

    monkeypatch.setattr(runner_module, "run_job", job)
    ground.run()
    lane = ground.book.lanes[document("a").lane_id]
    assert (lane.is_suspect, bool(lane.cut_to)) == (bool(trouble), not trouble)
    ground.rested()
    began_s = time.monotonic()
    ground.run()
    # When it runs alone, nobody else is at fault, and others go first.
    assert lane.cut_to == {WHERE: 1 if trouble else 2}
    assert lane.not_before_s > began_s if trouble else lane.not_before_s == 0.0
