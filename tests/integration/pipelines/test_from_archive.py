"""A pipeline that begins earlier than Kafka's log reads the archive first, and then Kafka."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from pipelines.jobs.job import MAYBE_DUPLICATE
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, with_state
from shared.event.derived import ORIGIN, derived_id
from shared.event.record import KafkaPartition, Origin, Position
from shared.event.topics import PIPELINES, lane_group, table_topic
from shared.proof.archived import ArchiveId
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.kafka_log import read_all
from tests.support.kafka.topics_anew import ends_of, forget
from tests.support.pipelines.archive_runs import bucket_of, folder_of, objects_of, wait_until_kept
from tests.support.pipelines.database_runs import counted_table, put_document, to_database
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    post_all,
    put,
    states,
    wait_until_all_is_done,
    written,
)
from tests.support.pipelines.postgres_process import PostgresProcess
from tests.support.pipelines.window_runs import put_table

pytestmark = pytest.mark.integration

KEPT = 3_000
TOTAL = KEPT + 500
SCHEMA = "n BIGINT"
ROW = {"select": {"id": "'s-' || n", "n": "n", "note": "'x'"}}


def from_the_first(source: str) -> dict[str, Any]:
    return {"from": {"stream": source, "start": 0}, "schema": SCHEMA}


def reaches(kafka: str, pipeline: Pipeline) -> dict[KafkaPartition, Reach]:
    async def read() -> dict[KafkaPartition, Reach]:
        positions = FencedPositions(kafka, lane_group(pipeline.lane_id))
        try:
            return await positions.read()
        finally:
            await positions.close()

    return asyncio.run(read())


def notes(kafka: str, pipeline: Pipeline) -> list[str]:
    """Return every note that a pipeline ever wrote about the places that it reads."""
    records = asyncio.run(read_all(kafka, PIPELINES))
    said = (with_state({}, record.key, record.value).get(pipeline.name) for record in records)
    return [state.note for state in said if state is not None and state.note]


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("rounds", [1, pytest.param(7, marks=pytest.mark.long)])
def test_what_kafka_has_no_more_comes_from_the_archive_once_and_killed_as_well(
    hifi: RunningHifi, postgres: PostgresProcess, database: str, rounds: int
) -> None:
    source = f"aged-{rounds}"
    archive, borders = _aged(hifi, source)
    for nth in range(rounds):
        name = f"{source}-{nth}"
        counted_table(postgres, database, f"kept_{nth}")
        put_table(hifi.kafka, f"{name}-table", written_by=f"{name}-table")
        to_stream, to_table = (
            document(
                f"{name}-{kind}",
                source,
                steps=[ROW, *more],
                to=[{kind: f"{name}-{kind}"}],
                **from_the_first(source),
            )
            for kind, more in (("stream", []), ("table", [{"key": "id"}]))
        )
        put(hifi.kafka, to_stream, to_table)
        to_rows = put_document(
            hifi,
            f"{name}-rows",
            source,
            steps=[ROW],
            to=[to_database(postgres, database, f"kept_{nth}")],
            **from_the_first(source),
        )
        pipelines = [to_stream, to_table, to_rows]
        _kill_while_it_reads(hifi, pipelines, borders)
        for each in pipelines:
            wait_until_all_is_done(hifi, each, TOTAL)
            balance = hifi.balance(each.lane_id)
            assert (balance.delivered, balance.dead, balance.unaccounted) == (TOTAL, 0, 0)
            told = notes(hifi.kafka, each)
            assert any(it.startswith(f"reads from the archive {archive.name} since") for it in told)
            assert states(hifi.kafka)[each.name].note == ""
        _check_stream(hifi, to_stream)
        rows = {it.key: json.loads(it.value) for it in hifi.records(table_topic(to_table.name))}
        assert {(key.decode(), row["n"]) for key, row in rows.items()} == {
            (f"s-{n}", n) for n in range(TOTAL)
        }
        for table in (f"kept_{nth}", f"kept_{nth}_writes"):
            counts = postgres.rows(f"SELECT count(*), count(DISTINCT id) FROM {table}", database)
            assert counts == [(TOTAL, TOTAL)], "a row was lost, or written twice"
    _what_is_missing_is_named_and_may_be_given_up(hifi, archive, to_stream)


def _aged(hifi: RunningHifi, source: str) -> tuple[ArchiveId, dict[KafkaPartition, int]]:
    """Return the stream's archive and the starts of its logs, which lack nearly all events."""
    archive, bucket = ArchiveId("default", source, f"{source}-archive"), bucket_of(folder_of(hifi))
    put(hifi.kafka, document(archive.name, source, to=[{"archive": "archive"}]))
    for half in (range(KEPT // 2), range(KEPT // 2, KEPT)):
        # This makes more than one object for a Kafka partition.
        for first in half[::100]:
            post_all(hifi, source, [{"n": n} for n in range(first, first + 100)])
        wait_until_kept(bucket, archive, half.stop)
    ends = asyncio.run(ends_of(hifi.kafka, source))
    # The borders are in the middle of objects; one Kafka partition has nothing left.
    borders = {it: end - nth * 40 for nth, (it, end) in enumerate(sorted(ends.items()))}
    asyncio.run(forget(hifi.kafka, borders))
    post_all(hifi, source, [{"n": n} for n in range(KEPT, TOTAL)])
    return archive, borders


def _kill_while_it_reads(
    hifi: RunningHifi, pipelines: Sequence[Pipeline], borders: Position
) -> None:
    """Kill until each pipeline has been interrupted while it read the archive."""
    left = list(pipelines)

    def reading() -> list[Pipeline]:
        return [
            each
            for each in left
            if any(
                reach.at < min(reach.until, borders[where])
                for where, reach in reaches(hifi.kafka, each).items()
            )
        ]

    def are_all_reading() -> bool:
        return reading() == left

    while left:
        wait_until(
            lambda: bool(reading()),
            what="one that is not interrupted yet reads the archive",
            timeout_s=START_S,
            look_s=0.01,
        )
        # Pipelines that have started together are interrupted together.
        with suppress(AssertionError):
            wait_until(are_all_reading, what="all pipelines read", timeout_s=0.5, look_s=0.01)
        hifi.stack.children["pipelines"].kill()
        cut = reading()
        left = [each for each in left if each not in cut]
        # Restart now: the others must not be done before the next look.
        hifi.stack.restarts.forgive()
        hifi.stack.look_after()


def _check_stream(hifi: RunningHifi, pipeline: Pipeline) -> None:
    """Check that each event is there with its original id, and that repeats are labelled."""
    rows = written(hifi.kafka, pipeline.name)
    assert {(row.value["id"], row.value["n"]) for row in rows} == {
        (f"s-{n}", n) for n in range(TOTAL)
    }
    plain: Counter[str] = Counter()
    places = set()
    for row in rows:
        topic, partition, offset = row.headers[ORIGIN].decode().rsplit(":", 2)
        origin = Origin(topic, int(partition), int(offset))
        assert row.event_id == derived_id(pipeline.name, 1, origin, 0)
        places.add(origin)
        plain[row.event_id] += MAYBE_DUPLICATE not in row.headers
    assert len(plain) == TOTAL, "an event has two ids"
    assert max(plain.values()) == 1, "an event arrived twice without a label"
    ends = asyncio.run(ends_of(hifi.kafka, pipeline.source.stream))
    assert places == {Origin(*where, at) for where, end in ends.items() for at in range(end)}


def _what_is_missing_is_named_and_may_be_given_up(
    hifi: RunningHifi, archive: ArchiveId, neighbour: Pipeline
) -> None:
    """Make a second archive of the stream, from the first one and the rest in Kafka."""
    bucket, folder = bucket_of(folder_of(hifi)), folder_of(hifi)
    # An object of the Kafka partition of which Kafka has nothing left.
    gone = next(each for each in objects_of(bucket, archive) if each.first and not each.partition)
    (folder / gone.path).unlink()
    again = document(
        f"{archive.name}-two",
        archive.stream,
        to=[{"archive": "archive"}],
        **{"from": {"stream": archive.stream, "start": 0}},
    )
    put(hifi.kafka, again)

    def state() -> PipelineState:
        return states(hifi.kafka).get(again.name, PipelineState("", "checking"))

    wait_until(
        lambda: f"{gone.path} is missing" in state().why,
        what=lambda: f"the missing object is named: {state()}",
        timeout_s=START_S,
    )
    post_all(hifi, archive.stream, [{"n": TOTAL}])
    wait_until_all_is_done(hifi, neighbour, TOTAL + 1)
    assert state().lost == 0, "a missing event is skipped"
    (folder / gone.manifest_path).unlink()
    hifi.wait_for_balance(
        again.lane_id,
        lambda balance: (
            (balance.delivered, balance.unaccounted, balance.queued)
            == (TOTAL + 1 - gone.count, gone.count, 0)
        ),
        what=f"{gone.count} events are reported as lost",
        timeout_s=START_S,
    )
    assert (state().lost, state().standing, state().why) == (gone.count, "running", "")
    kept = objects_of(bucket, archive._replace(name=again.name))
    assert sum(each.count for each in kept) == TOTAL + 1 - gone.count
