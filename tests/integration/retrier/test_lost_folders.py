"""Delivery and the retrier lose their folders, and continue from what Kafka knows."""

import asyncio
import shutil
from collections import Counter

import pytest

from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Position
from shared.event.topics import retry_topic, stream_topic
from shared.runtime.kafka.lane_positions import LaneGroups
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, wait_until
from tests.support.servers.scripted_destination import Reply, Request, always, scripted_destination

pytestmark = pytest.mark.integration

LOG, TIER = stream_topic("lost"), retry_topic("30s")


def fail_first(_: int, request: Request) -> Reply:
    return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)


def events(name: str) -> list[dict[str, str]]:
    return [{"id": f"{name}{number}"} for number in range(20)]


def has_told(hifi: RunningHifi, lane: str, topic: str, count: int) -> bool:
    """Return whether a lane has reported that it passed all `count` records of the test."""

    async def ask() -> Position:
        async with LaneGroups(hifi.kafka) as groups:
            return await groups.position(lane) or {}

    position = asyncio.run(ask())
    mine = [
        position.get(KafkaPartition(topic, record.partition), 0) > record.offset
        for record in hifi.records(topic)
        if topic == LOG or dict(record.headers).get("stream") == b"lost"
    ]
    return len(mine) == count and all(mine)


def kill(hifi: RunningHifi, name: str) -> None:
    victim = hifi.stack.children[name]
    victim.kill()
    wait_until(lambda: not victim.alive, what=f"{name} is dead")


def test_lost_folders_send_nothing_of_before_and_lose_nothing(
    hifi: RunningHifi,
) -> None:
    with scripted_destination(fail_first) as destination:
        to = Destination(stream="lost", name="to", url=destination.url)
        hifi.add(to)
        assert hifi.post("lost", events("settled")).status_code == 200
        hifi.wait_for_balance(to.id, lambda b: b.delivered == 20, what="20 delivered")
        wait_until(lambda: has_told(hifi, "retrier", TIER, 20), what="the retrier has reported it")
        kill(hifi, "retrier")
        # These wait when the retrier returns.
        assert hifi.post("lost", events("waiting")).status_code == 200
        hifi.wait_for_balance(to.id, lambda b: b.waiting == 20, what="20 wait")
        wait_until(lambda: has_told(hifi, to.id, LOG, 40), what="the lane has reported it")
        kill(hifi, "delivery")
        assert hifi.post("lost", events("unsent")).status_code == 200
        folder = hifi.stack.settings.folder
        # Issue 15: no lane has any state on disk.
        for name in ("delivery", "retrier"):
            shutil.rmtree(folder / name)
        destination.script = always(200)
        seen = len(destination.requests)
        hifi.stack.restarts.forgive()
        hifi.stack.look_after()
        hifi.wait_for_balance(
            to.id, lambda b: b.delivered == 60, what="all delivered", timeout_s=2 * PATIENCE_S
        )
        later = destination.requests[seen:]
        ids = Counter(event["id"] for request in later for event in request.events)
    assert ids == Counter(event["id"] for name in ("waiting", "unsent") for event in events(name))
    labels = {
        event["id"].rstrip("0123456789"): request.headers.get("hifi-maybe-duplicate")
        for request in later
        for event in request.events
    }
    # The marks say that nothing was under way.
    assert labels == {"waiting": None, "unsent": None}
    wait_until(lambda: has_told(hifi, "retrier", TIER, 40), what="the retrier reports again")
    assert hifi.balance(to.id).unaccounted == 0
