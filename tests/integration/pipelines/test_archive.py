"""A stream is archived through kills, and restored exactly.

`make test-long ARGS="-k million --kills=20"` archives a million events, or the number of --events,
through that many kills.
"""

import asyncio
from itertools import pairwise

import httpx
import pytest

from deploy.cli.archive.restoring import Restore, Restoring, found
from deploy.cli.books import counted_books
from shared.event.derived import RESTORED
from shared.event.envelope import EVENT_ID
from shared.event.topics import ARCHIVE, stream_topic
from shared.proof.archived import ArchivedObject, ArchiveId
from shared.runtime.archive.reading import lives_of
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.lookup.event_search import EventSearch
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.kafka_log import read_all
from tests.support.pipelines.archive_runs import (
    bucket_of,
    folder_of,
    log_of,
    objects_of,
    restored,
    wait_until_kept,
)
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    make_streams,
    post_all,
    put,
    states,
    wait_for_state,
    wait_until_all_is_done,
)

pytestmark = pytest.mark.integration


def test_what_was_kept_through_kills_comes_back_as_it_was(hifi: RunningHifi) -> None:
    _keep_through_kills(hifi, "kept-twice", kills=2, per_round=8_000)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_a_million_events_kept_through_many_kills_come_back_as_they_were(
    hifi: RunningHifi, request: pytest.FixtureRequest
) -> None:
    kills = request.config.getoption("--kills")
    per_round = request.config.getoption("--events") // kills
    _keep_through_kills(hifi, "kept-many", kills=kills, per_round=per_round)


def _keep_through_kills(hifi: RunningHifi, source: str, *, kills: int, per_round: int) -> None:
    pipeline = document(f"{source}-archive", source, to=[{"archive": "archive"}])
    put(hifi.kafka, pipeline)
    asyncio.run(make_streams(hifi.kafka, [f"{source}-again"]))
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    archive, bucket = ArchiveId("default", source, pipeline.name), bucket_of(folder_of(hifi))
    total = 0
    for nth in range(kills):
        before = len(objects_of(bucket, archive))
        post_all(
            hifi,
            source,
            [{"n": n, "text": "é" * (n % 50)} for n in range(total, total + per_round)],
        )
        total += per_round
        if nth % 2:
            # The process dies between two objects of a job, or between an object and its position.
            wait_until(
                lambda now=before: len(objects_of(bucket, archive)) > now,  # type: ignore[misc]
                what="one more object is archived",
                timeout_s=START_S,
                look_s=0.01,
            )
        hifi.stack.children["pipelines"].kill()
        hifi.revive("pipelines")
    objects = wait_until_kept(bucket, archive, total)
    assert sum(each.count for each in objects) == total, "an event is archived twice"
    for one, other in pairwise(objects):
        assert one.partition != other.partition or one.end == other.first, (
            "there is a gap or an overlap"
        )
    wait_until_all_is_done(hifi, pipeline, total)
    balance = hifi.balance(pipeline.lane_id)
    assert (balance.delivered, balance.dead, balance.unaccounted) == (total, 0, 0)
    told = [ArchivedObject.from_json(it.value) for it in asyncio.run(read_all(hifi.kafka, ARCHIVE))]
    assert {it.path for it in told if it.stream == source} == {it.path for it in objects}
    restoring = restored(hifi.kafka, bucket, archive, f"{source}-again", restore_id=source)
    assert restoring.done == total
    assert log_of(hifi.kafka, f"{source}-again") == log_of(hifi.kafka, source)
    again = asyncio.run(read_all(hifi.kafka, stream_topic(f"{source}-again")))
    assert {dict(record.headers)[RESTORED] for record in again} == {source.encode()}
    event_id = dict(again[-1].headers)[EVENT_ID].decode()
    for stream, by in ((f"{source}-again", source), (source, "")):
        (event,) = asyncio.run(EventSearch(hifi.kafka).find(stream, event_id)).found
        assert (event.envelope.event_id, event.restored_by) == (event_id, by)


def test_a_restore_that_is_cut_goes_on_and_nothing_comes_twice(hifi: RunningHifi) -> None:
    pipeline = document("cut-archive", "cut", to=[{"archive": "archive"}])
    put(hifi.kafka, pipeline)
    asyncio.run(make_streams(hifi.kafka, ["cut-again"]))
    post_all(hifi, "cut", [{"n": n} for n in range(900)])
    asked = hifi.post("cut", [{"n": n} for n in range(900, 1_000)]).json()
    archive, bucket = ArchiveId("default", "cut", pipeline.name), bucket_of(folder_of(hifi))
    wait_until_kept(bucket, archive, 1_000)
    wanted = Restore("cut", lives_of(bucket, archive)[-1], "cut-again", None, None, 300.0)

    async def cut() -> int:
        restoring = Restoring(hifi.kafka, bucket, wanted, found(bucket, wanted))
        run = restoring.run()
        async for done in run:
            await run.aclose()
            return done
        return 0

    first = asyncio.run(cut())
    assert 0 < first < 1_000
    assert asyncio.run(cut()) > first
    assert restored(hifi.kafka, bucket, archive, "cut-again", restore_id="cut").done == 1_000
    assert restored(hifi.kafka, bucket, archive, "cut-again", restore_id="cut").done == 1_000
    assert log_of(hifi.kafka, "cut-again") == log_of(hifi.kafka, "cut")
    _check_what_is_told_of_it(hifi, asked["request_id"])


def _check_what_is_told_of_it(hifi: RunningHifi, request_id: str) -> None:
    """Check for the restore in the books of the stream, and in the receipt of a request."""
    configuration = asyncio.run(read_config(hifi.kafka))
    restored = asyncio.run(counted_books(hifi.kafka, configuration)).restored["cut-again"]
    assert (restored.count, restored.last) == (1_000, "cut")
    receipt = httpx.get(f"{hifi.gateway}/v1/receipts/{request_id}", timeout=30).json()
    assert receipt["is_complete"]
    (told,) = receipt["restored"]
    assert (told["restore"], told["stream"]) == ("cut", "cut-again")
    assert told["events"] == [each["id"] for each in receipt["events"]]
    assert told["began_at_ms"] < told["last_at_ms"] == restored.last_ms


def test_steps_come_before_an_archive(hifi: RunningHifi) -> None:
    pipeline = document(
        "some-archive",
        "some",
        schema="n BIGINT",
        steps=[{"where": "n % 2 = 0"}],
        to=[{"archive": "archive"}],
    )
    put(hifi.kafka, pipeline)
    post_all(hifi, "some", [{"n": n if n % 5 else "no number"} for n in range(100)])
    archive, bucket = ArchiveId("default", "some", pipeline.name), bucket_of(folder_of(hifi))
    objects = wait_until_kept(bucket, archive, 40)
    assert not any(each.is_whole for each in objects)
    wait_until_all_is_done(hifi, pipeline, 100)
    assert sum(each.count for each in objects_of(bucket, archive)) == 40
    assert len(hifi.dead_letters(pipeline.lane_id)) == 20


def test_an_archive_without_a_store_waits_and_says_why(hifi: RunningHifi) -> None:
    pipeline = document("nowhere-archive", "nowhere", to=[{"archive": "no-such-store"}])
    put(hifi.kafka, pipeline)
    post_all(hifi, "nowhere", [{"n": 1}])
    wait_until(
        lambda: "there is no store 'no-such-store'" in _why(hifi, pipeline.name),
        what="the reason is reported",
        timeout_s=START_S,
    )


def _why(hifi: RunningHifi, name: str) -> str:
    state = states(hifi.kafka).get(name)
    return "" if state is None else state.why
