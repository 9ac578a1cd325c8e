"""A pipeline that begins earlier than Kafka does is fed from the archive, and then by Kafka."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from pipelines.jobs.job import MAYBE_DUPLICATE
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, with_state
from shared.event.derived import ORIGIN, derived_id
from shared.event.record import KafkaPartition, Origin
from shared.event.topics import PIPELINES, lane_group
from shared.proof.archived import ArchiveId
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from tests.support.archive_runs import bucket_of, folder_of, objects_of, wait_until_kept
from tests.support.kafka_log import read_all
from tests.support.pipeline_runs import (
    START_S,
    document,
    post_all,
    put,
    states,
    wait_until_all_is_done,
    written,
)
from tests.support.stack_fixtures import RunningHifi, wait_until
from tests.support.topics_anew import ends_of, forget

pytestmark = pytest.mark.integration

SOURCE, KEPT = "aged", 3_000
TOTAL = KEPT + 500


def from_the_first(name: str, to: list[dict[str, Any]], **fields: Any) -> Pipeline:
    return document(name, SOURCE, to=to, **fields, **{"from": {"stream": SOURCE, "start": 0}})


def reaches(kafka: str, pipeline: Pipeline) -> dict[KafkaPartition, Reach]:
    async def read() -> dict[KafkaPartition, Reach]:
        positions = FencedPositions(kafka, lane_group(pipeline.lane_id))
        try:
            return await positions.read()
        finally:
            await positions.close()

    return asyncio.run(read())


def notes(kafka: str, pipeline: Pipeline) -> list[str]:
    """All that it ever said of what it reads."""
    records = asyncio.run(read_all(kafka, PIPELINES))
    said = (with_state({}, record.key, record.value).get(pipeline.name) for record in records)
    return [state.note for state in said if state is not None and state.note]


def test_what_kafka_has_no_more_comes_from_the_archive_once_and_killed_as_well(
    hifi: RunningHifi,
) -> None:
    archive, bucket = ArchiveId("default", SOURCE, f"{SOURCE}-archive"), bucket_of(folder_of(hifi))
    put(hifi.kafka, document(archive.name, SOURCE, to=[{"archive": "archive"}]))
    for half in (range(KEPT // 2), range(KEPT // 2, KEPT)):
        # So that there is more than one object of a Kafka partition.
        for first in half[::100]:
            post_all(hifi, SOURCE, [{"n": n} for n in range(first, first + 100)])
        wait_until_kept(bucket, archive, half.stop)
    ends = asyncio.run(ends_of(hifi.kafka, SOURCE))
    # In the middle of objects; of one Kafka partition nothing is left.
    borders = {it: end - nth * 40 for nth, (it, end) in enumerate(sorted(ends.items()))}
    asyncio.run(forget(hifi.kafka, borders))
    post_all(hifi, SOURCE, [{"n": n} for n in range(KEPT, TOTAL)])
    pipeline = from_the_first(
        f"{SOURCE}-doubled",
        [{"stream": f"{SOURCE}-again"}],
        schema="n BIGINT",
        steps=[{"select": {"n": "n", "twice": "2 * n"}}],
    )
    put(hifi.kafka, pipeline)
    wait_until(
        lambda: any(it.until > it.at for it in reaches(hifi.kafka, pipeline).values()),
        what="it has begun to read",
        timeout_s=START_S,
        look_s=0.01,
    )
    hifi.stack.children["pipelines"].kill()
    cut = reaches(hifi.kafka, pipeline)
    under_way = [
        where for where, reach in cut.items() if reach.at < min(reach.until, borders[where])
    ]
    assert under_way, f"it was killed while it read the archive: {cut}, {borders}"
    hifi.revive("pipelines")
    wait_until_all_is_done(hifi, pipeline, TOTAL)
    balance = hifi.balance(pipeline.lane_id)
    assert (balance.delivered, balance.dead, balance.unaccounted) == (TOTAL, 0, 0)
    rows = written(hifi.kafka, f"{SOURCE}-again")
    assert {(row.value["n"], row.value["twice"]) for row in rows} == {
        (n, 2 * n) for n in range(TOTAL)
    }
    plain: Counter[str] = Counter()
    places = set()
    for row in rows:
        topic, partition, offset = row.headers[ORIGIN].decode().rsplit(":", 2)
        origin = Origin(topic, int(partition), int(offset))
        assert row.event_id == derived_id(pipeline.name, 1, origin, 0)
        places.add(origin)
        plain[row.event_id] += MAYBE_DUPLICATE not in row.headers
    assert len(plain) == TOTAL, "each event has one id, wherever it was read"
    assert max(plain.values()) == 1, "an event came twice and did not say that it may"
    ends = asyncio.run(ends_of(hifi.kafka, SOURCE))
    assert places == {Origin(*where, at) for where, end in ends.items() for at in range(end)}
    told = notes(hifi.kafka, pipeline)
    assert any(it.startswith(f"reads from the archive {archive.name} since 20") for it in told)
    assert states(hifi.kafka)[pipeline.name].note == ""
    _what_is_missing_is_named_and_may_be_given_up(hifi, archive, pipeline)


def _what_is_missing_is_named_and_may_be_given_up(
    hifi: RunningHifi, archive: ArchiveId, neighbour: Pipeline
) -> None:
    """An archive of the archive, and of a part of what Kafka has."""
    bucket, folder = bucket_of(folder_of(hifi)), folder_of(hifi)
    # Of the one of which Kafka has nothing.
    gone = next(each for each in objects_of(bucket, archive) if each.first and not each.partition)
    (folder / gone.path).unlink()
    again = from_the_first(f"{SOURCE}-archive-two", [{"archive": "archive"}])
    put(hifi.kafka, again)

    def state() -> PipelineState:
        return states(hifi.kafka).get(again.name, PipelineState("", "checking"))

    wait_until(
        lambda: f"{gone.path} is missing" in state().why,
        what=lambda: f"it says what is missing: {state()}",
        timeout_s=START_S,
    )
    post_all(hifi, SOURCE, [{"n": TOTAL}])
    wait_until_all_is_done(hifi, neighbour, TOTAL + 1)
    assert state().lost == 0, "nothing is passed by that is named"
    (folder / gone.manifest_path).unlink()
    hifi.wait_for_balance(
        again.lane_id,
        lambda balance: (
            (balance.delivered, balance.unaccounted, balance.pending)
            == (TOTAL + 1 - gone.count, gone.count, 0)
        ),
        what=f"it is known that {gone.count} are lost",
        timeout_s=START_S,
    )
    assert (state().lost, state().standing, state().why) == (gone.count, "running", "")
    kept = objects_of(bucket, archive._replace(name=again.name))
    assert sum(each.count for each in kept) == TOTAL + 1 - gone.count
