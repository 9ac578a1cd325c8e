"""After a topic is deleted and recreated, lanes send all events of the new one exactly once."""

import asyncio

import pytest

from shared.config.destination import Destination
from shared.event.topics import stream_spec
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.topics_anew import make_anew
from tests.support.servers.scripted_destination import ScriptedDestination, scripted_destination

pytestmark = pytest.mark.integration

STREAM = "made-anew"


def ids(prefix: str, count: int) -> list[dict[str, str]]:
    return [{"id": f"{prefix}-{number}"} for number in range(count)]


def arrived(at: ScriptedDestination, prefix: str, count: int) -> None:
    """Wait for these events, and check that each arrived once."""
    wait_until(
        lambda: sum(each.startswith(prefix) for each in at.accepted_ids) >= count,
        what=lambda: f"{prefix}: {len(at.accepted_ids)} ids have arrived in all",
    )
    times = {each: many for each, many in at.accepted_ids.items() if each.startswith(prefix)}
    assert times == {each["id"]: 1 for each in ids(prefix, count)}


def test_all_of_a_topic_that_was_made_anew_arrives_once_though_it_has_as_much_as_before(
    hifi: RunningHifi,
) -> None:
    with scripted_destination() as one, scripted_destination() as other:
        hifi.add(Destination(STREAM, "micro", one.url))
        hifi.add(Destination(STREAM, "realtime", other.url, latency="realtime"))
        assert hifi.post(STREAM, ids("first", 200)).status_code == 200
        for at in (one, other):
            arrived(at, "first", 200)
        # Recreate the topic while lanes run, and then while none does.
        asyncio.run(make_anew(hifi.kafka, stream_spec(STREAM)))
        assert hifi.post(STREAM, ids("second", 400)).status_code == 200
        for at in (one, other):
            arrived(at, "second", 400)
        hifi.stack.children["delivery"].kill()
        asyncio.run(make_anew(hifi.kafka, stream_spec(STREAM)))
        assert hifi.post(STREAM, ids("third", 800)).status_code == 200
        hifi.revive("delivery")
        for at in (one, other):
            arrived(at, "third", 800)
