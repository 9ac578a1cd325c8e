"""The pipelines process is killed again and again in mid-batch: no loss, and labelled repeats."""

import asyncio
from collections import Counter, defaultdict

import pytest

from pipelines.jobs.job import MAYBE_DUPLICATE
from shared.event.derived import ORIGIN, derived_id
from shared.event.record import Origin
from shared.event.topics import stream_topic
from shared.runtime.kafka.reader import open_reader
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    post_all,
    put,
    wait_for_state,
    wait_until_all_is_done,
    written,
)

pytestmark = pytest.mark.integration

# Events in each round before a kill, which comes when the job is in the middle of them.
ROUND = 5_000


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.long)])
def test_kills_in_mid_batch_lose_nothing_and_repeats_have_the_same_ids(
    hifi: RunningHifi, kills: int
) -> None:
    source = f"kills{kills}"
    even, odd = f"{source}-even", f"{source}-odd"
    pipeline = document(
        f"{source}-split",
        source,
        schema="n BIGINT",
        steps=[{"where": "n % 3 != 0"}, {"select": {"n": "n", "twice": "2 * n"}}],
        to=[{"stream": even, "when": "n % 2 = 0"}, {"stream": odd}],
        match="first",
    )
    put(hifi.kafka, pipeline)
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    total = 0
    for _ in range(kills):
        events = [{"n": n} for n in range(total, total + ROUND)]
        total += ROUND
        before = len(written(hifi.kafka, odd))
        post_all(hifi, source, events)
        wait_until(
            lambda now=before: len(written(hifi.kafka, odd)) > now,  # type: ignore[misc]
            what="some events are written",
            timeout_s=START_S,
            look_s=0.01,
        )
        victim = hifi.stack.children["pipelines"]
        victim.kill()
        hifi.revive("pipelines")
    wait_until_all_is_done(hifi, pipeline, total)
    rows = {0: written(hifi.kafka, even), 1: written(hifi.kafka, odd)}
    kept = [n for n in range(total) if n % 3]
    for number, found in rows.items():
        assert {row.value["n"] for row in found} == {n for n in kept if n % 2 == number}
        assert all(row.value["twice"] == 2 * row.value["n"] for row in found)
    ids = defaultdict(set)
    plain: Counter[str] = Counter()
    for number, found in rows.items():
        for row in found:
            topic, partition, offset = row.headers[ORIGIN].decode().rsplit(":", 2)
            origin = Origin(topic, int(partition), int(offset))
            assert row.event_id == derived_id(pipeline.name, 1, origin, number)
            ids[row.value["n"]].add(row.event_id)
            plain[row.event_id] += MAYBE_DUPLICATE not in row.headers
    assert {len(one) for one in ids.values()} == {1}, "a repeat has another id"
    assert max(plain.values()) == 1, "an event arrived twice without a label"
    balance = hifi.balance(pipeline.lane_id)
    assert (balance.delivered, balance.dead, balance.unaccounted) == (total, 0, 0)


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize(
    ("kills", "count"), [(1, ROUND), pytest.param(10, 100_000, marks=pytest.mark.long)]
)
def test_kills_in_mid_batch_leave_one_kafka_partition_in_its_order(
    hifi: RunningHifi, kills: int, count: int
) -> None:
    """Without repeats, the events of each id have the order in which they were posted."""
    source = f"in-line{kills}"
    pipeline = document(
        f"{source}-keyed",
        source,
        schema="n BIGINT",
        steps=[{"where": "n % 3 != 0"}, {"key": "n % 7"}],
        to=[{"stream": f"{source}-out"}],
    )
    put(hifi.kafka, pipeline, partition_count=1)
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    out, total = stream_topic(f"{source}-out"), 0
    for _ in range(kills):
        before, began = asyncio.run(end_of(hifi.kafka, out)), total
        total += count
        post_all(hifi, source, [{"n": n} for n in range(began, total)])
        wait_until(
            lambda now=before: asyncio.run(end_of(hifi.kafka, out)) > now,  # type: ignore[misc]
            what="some events are written",
            timeout_s=START_S,
            look_s=0.01,
        )
        hifi.stack.children["pipelines"].kill()
        hifi.revive("pipelines")
    wait_until_all_is_done(hifi, pipeline, total)
    found = written(hifi.kafka, f"{source}-out")
    firsts: dict[str, int] = {}
    for row in found:
        firsts.setdefault(row.event_id, row.value["n"])
    assert list(firsts.values()) == [n for n in range(total) if n % 3]
    assert len(found) > len(firsts) or kills == 1, "no kill came in mid-batch"


async def end_of(kafka: str, topic: str) -> int:
    """Return the sum of the ends of a stream's Kafka partitions."""
    async with open_reader(kafka) as reader:
        return sum(end for _, end in (await reader.spans([topic])).values())
