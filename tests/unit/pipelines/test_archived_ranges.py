"""Events gone from Kafka are read from archives, piece by piece, up to the start of Kafka's log."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pipelines.archive import archive_reads
from pipelines.archive.archive_reads import ArchiveReads, Gone
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.portions import PlannedJob
from pipelines.parts.archive_source import ArchiveAwayError, kept_record, kept_rows
from pipelines.settings import PipelinesSettings
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Position
from shared.event.topics import stream_topic
from shared.proof.archived import ArchivedObject, Laid
from shared.runtime.kafka.leases.fenced_positions import Reach
from tests.support.pipelines.archive_made import ARCHIVE, AT_MS, kept, row, sink_of

LIFE = "l"
ONE, TWO = (KafkaPartition("hifi.stream.orders", number) for number in range(2))
STARTS = {ONE: 40, TWO: 0}


def document(name: str, **fields: Any) -> Pipeline:
    return Pipeline.of(
        {"name": name, "from": {"stream": "orders"}, "to": [{"stream": "t"}], **fields}
    )


PIPELINE = document("p")
SINCE = document("since", **{"from": {"stream": "orders", "start": AT_MS + 15}})
TEE = document(ARCHIVE.name, to=[{"archive": "here"}])


def made(folder: Path, first: int, end: int) -> ArchivedObject:
    rows = [row(0, at) for at in range(first, end)]
    (said,) = kept(sink_of(folder, life=LIFE), *rows, ranges={ONE: (first, end)})
    return said


class Ground:
    """One process, with a folder as its store."""

    def __init__(self, folder: Path, *pipelines: Pipeline) -> None:
        stores = folder / "stores.toml"
        stores.write_text(f'[here]\nurl = "file://{folder}"\n')
        self.book = PipelineBook(events_max=1_000, time_box_s=5, own_jobs_max=4)
        self.ids: dict[str, str] = {stream_topic("orders"): LIFE}
        self.said: list[str] = []
        self.notes: list[str] = []
        self.gone: list[Gone] = []
        known = Configuration()
        for each in (TEE, *pipelines):
            known = known.apply(each.config_key, each.to_json())
        options: dict[str, Any] = {"HIFI_STORES": stores, "HIFI_STORE_FOLDERS": folder}
        settings, log = PipelinesSettings(**options), self._log()
        self.reads = ArchiveReads(
            *(settings, log, self.book, lambda: known),
            pass_by=self._pass_by,
            say=lambda _, why: self.said.append(why),
            note=lambda _, note: self.notes.append(note),
        )

    async def _pass_by(self, lane_id: str, _: Pipeline, gone: Gone) -> None:
        self.gone.append(gone)
        for where, span in gone.items():
            self.book.move(lane_id, where, span[1])

    def _log(self) -> Any:
        return self

    async def starts(self, places: list[KafkaPartition]) -> Position:
        return {where: STARTS[where] for where in places}

    def begin(self, pipeline: Pipeline, at: int, *, is_new: bool = False) -> None:
        reaches = {ONE: Reach(at, at), TWO: Reach(0, 0)}
        found, borders = asyncio.run(self.reads.begin(pipeline, reaches, is_new=is_new))
        self.book.enter(pipeline.lane_id, pipeline.tenant, found)
        self.book.lanes[pipeline.lane_id].earlier.hide(borders)
        self.book.see_ends({ONE: 60, TWO: 5})

    def look(self, *pipelines: Pipeline) -> None:
        async def run() -> None:
            self.reads.look({it.lane_id: it for it in pipelines})
            await asyncio.gather(*self.reads._looking)

        asyncio.run(run())

    def job(self) -> PlannedJob:
        (job,) = self.book.plan(0.0)
        return job

    def end(self, job: PlannedJob) -> None:
        self.book.done(job, 0.1, 1.0)
        self.book.over(job)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    ground = Ground(tmp_path, PIPELINE, SINCE)

    async def ids(_: object, __: object) -> Mapping[str, str]:
        return ground.ids

    monkeypatch.setattr(archive_reads, "topic_ids", ids)
    return ground


def test_it_reads_the_archive_to_where_kafka_begins_and_then_kafka(
    ground: Ground, tmp_path: Path
) -> None:
    made(tmp_path, 10, 30)
    made(tmp_path, 30, 45)
    ground.begin(PIPELINE, 12)
    assert [job.portions[0].ranges for job in ground.book.plan(0.0)] == [{TWO: (0, 5)}]
    ground.book.lanes[PIPELINE.lane_id].is_under_way = False
    ground.book.lanes[PIPELINE.lane_id].reaches[TWO] = Reach(5, 5)
    ground.look(PIPELINE)
    assert ground.notes == ["reads from the archive kept since 2026-11-24T06:00:00.010Z, 28 events"]
    job = ground.job()
    (portion,) = job.portions
    assert (portion.ranges, portion.is_archived, job.is_shared) == ({ONE: (12, 40)}, True, False)
    batches = [*kept_rows(ONE, portion.ranges[ONE], portion.earlier[ONE])]
    offsets = [at for each in batches for at in each.column("offset").to_pylist()]
    assert offsets == [*range(12, 40)]
    record = kept_record(ONE, 39, portion.earlier[ONE])
    assert record is not None
    assert record.timestamp_ms == AT_MS + 39
    ground.end(job)
    (portion,) = ground.job().portions
    assert (portion.ranges, portion.earlier) == ({ONE: (40, 60)}, {})
    ground.book.lanes[PIPELINE.lane_id].is_under_way = False
    ground.look(PIPELINE)
    assert ground.notes[1:] == [""]
    assert (ground.said, ground.gone) == ([], [])


def test_a_job_has_of_an_archive_what_is_known_to_be_there(ground: Ground, tmp_path: Path) -> None:
    made(tmp_path, 10, 20)
    made(tmp_path, 30, 40)
    ground.begin(PIPELINE, 5)
    ground.book.lanes[PIPELINE.lane_id].reaches[TWO] = Reach(5, 5)
    ground.look(PIPELINE)
    assert ground.gone == [{ONE: (5, 10)}]
    job = ground.job()
    assert job.portions[0].ranges == {ONE: (10, 20)}
    ground.end(job)
    assert ground.book.plan(0.0) == [], "the archive has not been listed yet"
    ground.look(PIPELINE)
    assert ground.gone[1:] == [{ONE: (20, 30)}]
    assert ground.job().portions[0].ranges == {ONE: (30, 40)}


def test_what_no_archive_has_is_passed_by_to_where_kafka_begins(ground: Ground) -> None:
    ground.begin(PIPELINE, 12)
    ground.look(PIPELINE)
    assert ground.gone == [{ONE: (12, 40)}]
    assert ground.job().portions[0].ranges == {ONE: (40, 60), TWO: (0, 5)}


def test_one_that_is_new_begins_at_its_time_as_far_as_the_archive_has_it(
    ground: Ground, tmp_path: Path
) -> None:
    made(tmp_path, 10, 30)
    ground.begin(SINCE, 40, is_new=True)
    assert ground.book.lanes[SINCE.lane_id].position == {ONE: 15, TWO: 0}
    # A pipeline with a position continues from it. A new one that is to begin at Kafka's oldest
    # record needs no archive.
    ground.book.leave(SINCE.lane_id)
    ground.begin(SINCE, 40)
    assert ground.book.lanes[SINCE.lane_id].position == {ONE: 40, TWO: 0}
    ground.begin(PIPELINE, 40, is_new=True)
    assert ground.book.lanes[PIPELINE.lane_id].earlier.borders == {}


def test_what_is_damaged_is_named_and_stops_its_pipeline_until_it_is_mended(
    ground: Ground, tmp_path: Path
) -> None:
    said = made(tmp_path, 10, 40)
    manifest = (tmp_path / said.manifest_path).read_bytes()
    (tmp_path / said.manifest_path).write_text("{")
    ground.begin(PIPELINE, 12)
    ground.look(PIPELINE)
    assert len(ground.said) == 1
    assert ground.said[0].startswith(f"{said.manifest_path} is unreadable")
    lane = ground.book.lanes[PIPELINE.lane_id]
    assert ground.book.plan(0.0) == [], "the pipeline waits"
    assert (lane.reaches[ONE].at, ground.gone) == (12, [])
    (tmp_path / said.manifest_path).write_bytes(manifest)
    lane.not_before_s = 0.0
    ground.look(PIPELINE)
    assert ground.said[1:] == [""]
    # A missing object is looked up again, wherever it may be now.
    job = ground.job()
    (tmp_path / said.path).unlink()
    with pytest.raises(ArchiveAwayError, match=f"{said.path} is missing"):
        kept_record(ONE, 12, job.portions[0].earlier[ONE])
    ground.book.held_up(job, 0.0)
    ground.book.over(job)
    assert ground.book.lanes[PIPELINE.lane_id].earlier.unknown({ONE: 12}) == {ONE: 12}


def test_nothing_is_passed_by_while_kafka_cannot_say_which_life_there_is(ground: Ground) -> None:
    ground.ids.clear()
    ground.begin(PIPELINE, 12)
    ground.look(PIPELINE)
    assert (ground.gone, ground.said) == ([], [])
    assert ground.book.lanes[PIPELINE.lane_id].not_before_s > 0


def test_of_a_tenant_one_asks_at_a_time_and_others_meanwhile(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not answer delays only its own tenant."""
    theirs = document("theirs", tenant="acme")
    go_on, asked = threading.Event(), list[str]()

    def found(pipeline: Pipeline, *_: object) -> dict[KafkaPartition, Any]:
        asked.append(pipeline.name)
        if pipeline.tenant == PIPELINE.tenant:
            assert go_on.wait(10)
        else:
            go_on.set()
        return {}

    monkeypatch.setattr(ground.reads, "_found", found)
    for each in (PIPELINE, SINCE, theirs):
        ground.book.enter(each.lane_id, each.tenant, {ONE: Reach(0, 0)})
        ground.book.lanes[each.lane_id].earlier.hide({ONE: 40})
    ground.look(PIPELINE, SINCE, theirs)
    assert sorted(asked[:2]) == ["p", "theirs"]
    assert asked[2:] == ["since"]


def test_archives_are_read_in_half_of_the_places(ground: Ground, tmp_path: Path) -> None:
    said = made(tmp_path, 0, 40)
    ground.begin(PIPELINE, 0)
    ground.look(PIPELINE)
    piece = ground.book.lanes[PIPELINE.lane_id].earlier.pieces({ONE: 0})[ONE]
    assert piece.end == said.end
    for nth in range(6):
        ground.book.enter(f"x.{nth}", f"t{nth}", {ONE: Reach(0, 0)})
        if nth < 3:
            ground.book.lanes[f"x.{nth}"].earlier.hide({ONE: 40})
            ground.book.lanes[f"x.{nth}"].earlier.found(ONE, piece)
    jobs = ground.book.plan(0.0)
    assert [job.portions[0].is_archived for job in jobs] == [True, True, False, False]
    for job in jobs:
        ground.end(job)
    again = ground.book.plan(2.0)
    assert sum(job.portions[0].is_archived for job in again) == 2, (
        "the archive places are free again"
    )


def test_of_an_archive_a_job_has_the_oldest(ground: Ground, tmp_path: Path) -> None:
    made(tmp_path, 0, 40)
    ground.begin(PIPELINE, 0)
    ground.look(PIPELINE)
    lane = ground.book.lanes[PIPELINE.lane_id]
    piece = lane.earlier.pieces({ONE: 0})[ONE]
    ((said, first),) = piece.objects
    for nth in range(2, 5):
        where = KafkaPartition(ONE.topic, nth)
        later = structs.replace(said, from_ms=said.from_ms + 10 - nth)
        lane.earlier.hide({where: 40})
        lane.earlier.found(where, replace(piece, objects=(Laid(later, first),)))
        lane.reaches[where] = Reach(0, 0)
        ground.book.see_ends({where: 40})
    assert ground.job().portions[0].ranges.keys() == {ONE, TWO, KafkaPartition(ONE.topic, 4)}
