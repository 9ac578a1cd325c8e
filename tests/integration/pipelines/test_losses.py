"""Events that Kafka lost before a pipeline read them delay nothing, and are counted exactly."""

import asyncio
from typing import Any

import pytest

from shared.config.pipeline import Pipeline
from shared.event.record import Position
from shared.event.topics import stream_spec
from shared.proof.archived import ArchiveId
from shared.runtime.archive.reading import listed, lives_of
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.topics_anew import ends_of, forget, make_anew
from tests.support.pipelines.archive_runs import bucket_of, folder_of, log_of, restored
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    make_streams,
    post_all,
    put,
    states,
    wait_for_state,
    wait_until_all_is_done,
    written,
)

pytestmark = pytest.mark.integration

_FIRST = 40


def _is_told(hifi: RunningHifi, pipeline: Pipeline, lost: int) -> None:
    def told() -> Any:
        state = states(hifi.kafka)[pipeline.name]
        return state.lost, state.standing, state.why

    wait_until(
        lambda: told() == (lost, "running", ""),
        what=lambda: f"{pipeline.name} reports {lost} as lost: {told()}",
        timeout_s=START_S,
    )
    _wait_for_loss(hifi, pipeline, lost)


def test_what_was_deleted_before_it_was_read_is_counted_and_passed_by(hifi: RunningHifi) -> None:
    source = "forgets"
    kept = document("forgets-archive", source, to=[{"archive": "archive"}])
    passed = document("forgets-passed", source, to=[{"stream": "forgets-again"}])
    put(hifi.kafka, kept, passed)
    for each in (kept, passed):
        wait_for_state(hifi.kafka, each, "running", within_s=START_S)
    post_all(hifi, source, [{"n": n} for n in range(_FIRST)])
    for each in (kept, passed):
        wait_until_all_is_done(hifi, each, _FIRST)
    hifi.stack.children["pipelines"].kill()
    read = asyncio.run(ends_of(hifi.kafka, source))
    post_all(hifi, source, [{"n": n} for n in range(_FIRST, 400)])
    lost = _forget(hifi, source, read, but=5)
    assert lost > 0
    hifi.revive("pipelines")
    for each in (kept, passed):
        _is_told(hifi, each, lost)
    archive, bucket = ArchiveId("default", source, kept.name), bucket_of(folder_of(hifi))
    (life,) = lives_of(bucket, archive)
    assert sum(each.count for each in listed(bucket, life).objects) == 400 - lost
    assert len({each.event_id for each in written(hifi.kafka, "forgets-again")}) == 400 - lost
    # All new events are gone: nothing is left to read, and the pipeline does not wait.
    hifi.stack.children["pipelines"].kill()
    read = asyncio.run(ends_of(hifi.kafka, source))
    post_all(hifi, source, [{"n": n} for n in range(100)])
    assert _forget(hifi, source, read, but=0) == 100
    hifi.revive("pipelines")
    for each in (kept, passed):
        _wait_for_loss(hifi, each, lost + 100)
    post_all(hifi, source, [{"n": 1}])
    for each in (kept, passed):
        hifi.wait_for_balance(
            each.lane_id,
            lambda balance: (balance.delivered, balance.queued) == (401 - lost, 0),
            what=f"{each.name} continues",
            timeout_s=START_S,
        )


def _wait_for_loss(hifi: RunningHifi, pipeline: Pipeline, lost: int) -> None:
    hifi.wait_for_balance(
        pipeline.lane_id,
        lambda balance: (balance.unaccounted, balance.queued) == (lost, 0),
        what=f"{lost} are in the books of {pipeline.name} as lost",
        timeout_s=START_S,
    )


def _forget(hifi: RunningHifi, stream: str, read: Position, *, but: int) -> int:
    """Leave `but` events in each Kafka partition; return how many unread ones are gone."""
    ends = asyncio.run(ends_of(hifi.kafka, stream))
    upto = {where: max(0, end - but) for where, end in ends.items()}
    asyncio.run(forget(hifi.kafka, upto))
    return sum(max(0, at - read[where]) for where, at in upto.items())


def test_each_life_of_a_stream_is_kept_and_comes_back(hifi: RunningHifi) -> None:
    source, count = "lives", 300
    pipeline = document("lives-archive", source, to=[{"archive": "archive"}])
    put(hifi.kafka, pipeline)
    asyncio.run(make_streams(hifi.kafka, ["lives-one", "lives-two"]))
    post_all(hifi, source, [{"n": n} for n in range(count)])
    bucket, archive = bucket_of(folder_of(hifi)), ArchiveId("default", source, pipeline.name)
    wait_until(
        lambda: _kept(bucket, archive) == [count],
        what="the first topic's events are archived",
        timeout_s=START_S,
    )
    before = log_of(hifi.kafka, source)
    asyncio.run(make_anew(hifi.kafka, stream_spec(source)))
    # Post more events than before: without the topic's id they would look like later ones.
    post_all(hifi, source, [{"m": n} for n in range(2 * count)])
    wait_until(
        lambda: _kept(bucket, archive) == [count, 2 * count],
        what=lambda: f"both topics' events are archived: {_kept(bucket, archive)}",
        timeout_s=START_S,
    )
    after = log_of(hifi.kafka, source)
    one, two = lives_of(bucket, archive)
    for life, stream, log in ((one, "lives-one", before), (two, "lives-two", after)):
        restored(hifi.kafka, bucket, life, stream, restore_id="lives")
        assert log_of(hifi.kafka, stream) == log
    assert states(hifi.kafka)[pipeline.name].standing == "running"


def _kept(bucket: Any, archive: ArchiveId) -> list[int]:
    lives = (listed(bucket, life).objects for life in lives_of(bucket, archive))
    return [sum(each.count for each in objects) for objects in lives]
