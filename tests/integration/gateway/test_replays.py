"""A tenant resends a span of a stream: replays are requested, carried out, refused, cancelled."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka.errors import KafkaError
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from gateway.control.resends import replays as routes
from gateway.control.stores.replays import ReplayStore
from gateway.settings import Settings
from retrier import restraint
from retrier.broker import Broker
from retrier.loop import GROUP
from retrier.replays import Replayer
from retrier.settings import RetrierSettings
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.envelope import AMBIGUOUS, EVENT_ID, REPLAY_ID
from shared.event.topics import retry_topic
from shared.runtime.health import Pulse
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.leases.fenced_positions import FencedPositions
from shared.runtime.kafka.state_topic import StateFeed
from shared.slots import SLOT_COUNT
from tests.integration.gateway.test_stream_events import a_key
from tests.integration.observe.test_console_kafka import event, stored, write
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.kafka.kafka_log import read_all

pytestmark = pytest.mark.integration

STREAM = "replayed-again"
COUNT = 60
ALL_SLOTS = frozenset(range(SLOT_COUNT))
SINCE = "2020-01-01T00:00:00Z"
OWNER, OWNS = a_key("owner", "admin")
READER, READS = a_key("onlooker", "read")
STRANGER, ELSEWHERE = a_key("foreigner", "admin", tenant="others")
STREAMS = {
    name: Stream(name, tenant=tenant)
    for name, tenant in ((STREAM, "default"), ("foreign", "others"))
}
TO = Destination(STREAM, "to", "https://to.example/")
CONFIGURED = Configuration(
    streams=STREAMS,
    destinations={TO.id: TO},
    keys={key.id: key for key in (OWNER, READER, STRANGER)},
)


@pytest.fixture(scope="module")
def gateway(kafka: Cluster) -> Iterator[RunningGateway]:
    write(kafka, STREAM, [stored(event(STREAM, number)) for number in range(COUNT)])
    settings = Settings(auth="keys", bootstrap_servers=kafka.bootstrap_servers)
    replays = ReplayStore(kafka.bootstrap_servers)
    config = FixedConfig(CONFIGURED)
    with running_gateway(FakePublisher([]), config, settings, replays=replays) as running:
        yield running


def ask(
    gateway: RunningGateway,
    method: str,
    path: str = "",
    /,
    key: str = OWNS,
    stream: str = STREAM,
    **order: Any,
) -> httpx.Response:
    url = f"{gateway.url}/v1/streams/{stream}/replays{path}"
    headers = {"authorization": f"Bearer {key}"}
    body = json.dumps(order).encode() if order else None
    return httpx.request(method, url, content=body, headers=headers, timeout=30)


def create(gateway: RunningGateway, **order: Any) -> httpx.Response:
    return ask(gateway, "POST", **{"destination": "to", "from": SINCE, **order})


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class StillConfig(ConfigFeed):
    """A feed with the gateway's configuration."""

    def __init__(self, servers: str, configuration: Configuration) -> None:
        super().__init__(servers)
        self.value = configuration


@asynccontextmanager
async def running_replayer(servers: str, configuration: Configuration) -> AsyncIterator[Replayer]:
    """Run the replayer of a retrier that holds all slots."""
    settings = RetrierSettings(bootstrap_servers=servers, folder=Path("nowhere"))
    fenced, broker = FencedPositions(servers, GROUP), Broker(servers)
    config = StillConfig(servers, configuration)
    replayer = Replayer(settings, config, StateFeed(servers), fenced, broker)
    await replayer.feed.start()
    replayer.begin(ALL_SLOTS)
    stop = asyncio.Event()
    running = asyncio.create_task(replayer.run(stop, Pulse()))
    try:
        yield replayer
    finally:
        await replayer.finish(ALL_SLOTS)
        stop.set()
        await running
        await replayer.feed.stop()
        await fenced.close()
        await broker.close()


def carry_out(
    kafka: Cluster,
    *places: tuple[str, str],
    configuration: Configuration = CONFIGURED,
    until: Any = None,
    rivals: int = 1,
) -> None:
    """Run one retrier, or rivals who each think so, until replays are over or `until` is true."""
    servers = kafka.bootstrap_servers

    async def run() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(60):
            for _ in range(rivals):
                running = running_replayer(servers, configuration)
                replayer = await stack.enter_async_context(running)
            known = replayer.feed.value
            while not (
                all(known[each].state != "running" for each in places)
                or (until is not None and all(until(known[each]) for each in places))
            ):
                await asyncio.sleep(0.02)
                known = replayer.feed.value

    asyncio.run(run())
    # Overtaken replays leave unread errors: make them appear here, not in another test.
    gc.collect()


async def until_kafka_knows_the_group(servers: str) -> None:
    """Wait: a new group takes Kafka seconds; a replay that stops earlier forgets what it queued."""
    fenced = FencedPositions(servers, GROUP)
    try:
        async with asyncio.timeout(30):
            while True:
                with suppress(KafkaError):
                    await fenced.read()
                    break
                await asyncio.sleep(0.2)
    finally:
        await fenced.close()


def queued(kafka: Cluster, replay_id: str) -> list[str]:
    """Return the ids of the events that wait to be sent, for a replay."""
    found = asyncio.run(read_all(kafka.bootstrap_servers, retry_topic("30s", is_parked=True)))
    every = [dict(one.headers) for one in found]
    of_it = [each for each in every if each.get(REPLAY_ID) == replay_id.encode()]
    assert all(each[AMBIGUOUS] == b"1" for each in of_it)
    return [each[EVENT_ID].decode() for each in of_it]


def test_a_span_is_counted_ordered_once_and_queued_whole(
    kafka: Cluster, gateway: RunningGateway
) -> None:
    assert create(gateway, dry_run=True).json() == {"count": COUNT}
    assert ask(gateway, "GET").json() == {"replays": [], "next": None}
    made = create(gateway, id="whole", rate_per_s=1000)
    assert made.status_code == 201, made.text
    told = made.json()
    assert (told["state"], told["count"], told["sent"]) == ("running", COUNT, 0)
    again = create(gateway, id="whole", rate_per_s=1000)
    assert (again.status_code, again.json()["created_at"]) == (200, told["created_at"])
    assert refused(create(gateway, id="whole", rate_per_s=7)) == (409, "replay_in_use")
    carry_out(kafka, (STREAM, "whole"))
    assert sorted(queued(kafka, "whole")) == sorted(f"e{number}" for number in range(COUNT))
    told = ask(gateway, "GET", "/whole").json()
    assert (told["state"], told["read"], told["sent"], told["gone"]) == ("done", COUNT, COUNT, 0)
    assert told["created_at"] > told["reached_at"] > SINCE
    # A replay that is over can neither start again nor be cancelled.
    assert ask(gateway, "DELETE", "/whole").json()["state"] == "done"
    carry_out(kafka, (STREAM, "whole"))
    assert len(queued(kafka, "whole")) == COUNT


def test_one_event_of_it_goes_alone(kafka: Cluster, gateway: RunningGateway) -> None:
    order = {"destination": "to", "event": "e7", "id": "one"}
    assert ask(gateway, "POST", **order).status_code == 201
    carry_out(kafka, (STREAM, "one"))
    assert queued(kafka, "one") == ["e7"]
    told = ask(gateway, "GET", "/one").json()
    assert (told["state"], told["read"], told["sent"]) == ("done", COUNT, 1)


def test_whoever_takes_it_over_leaves_nothing_out_and_sends_nothing_twice(
    kafka: Cluster, gateway: RunningGateway
) -> None:
    assert create(gateway, id="moved", rate_per_s=5).status_code == 201
    place = (STREAM, "moved")
    # Either retrier may end the other one, at any point.
    for sent in (5, 10, 15):
        carry_out(
            kafka, place, rivals=2, until=lambda known, least=sent: known.progress.sent >= least
        )
    so_far = queued(kafka, "moved")
    assert 15 <= len(so_far) < COUNT
    assert ask(gateway, "DELETE", "/moved").json()["state"] == "cancelled"
    carry_out(kafka, place)
    told = ask(gateway, "GET", "/moved").json()
    assert (told["state"], told["sent"]) == ("cancelled", len(queued(kafka, "moved")))
    assert len(set(queued(kafka, "moved"))) == len(queued(kafka, "moved")) == told["sent"]


def test_its_crowd_stays_in_the_stream_and_a_tenants_replays_share_the_room(
    kafka: Cluster, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(until_kafka_knows_the_group(kafka.bootstrap_servers))
    monkeypatch.setattr(restraint, "WAITING_MAX", 20)
    places = [(STREAM, name) for name in ("crowd-a", "crowd-b")]
    assert [create(gateway, id=name, rate_per_s=5).status_code for _, name in places] == [201, 201]
    carry_out(kafka, *places, until=lambda known: known.progress.why)
    # No lane here advances past any of the events that are sent.
    for _, name in places:
        told = ask(gateway, "GET", f"/{name}").json()
        assert told["waits_because"] == "10 of its events already wait to be sent"
        assert told["sent"] == len(queued(kafka, name)) == 10
        assert ask(gateway, "DELETE", f"/{name}").json()["state"] == "cancelled"


def test_it_waits_for_a_destination_that_is_paused_and_fails_with_one_that_is_gone(
    kafka: Cluster, gateway: RunningGateway
) -> None:
    assert create(gateway, id="held").status_code == 201
    place = (STREAM, "held")
    paused = Destination(STREAM, "to", TO.url, is_paused=True)
    carry_out(
        kafka,
        place,
        configuration=Configuration(streams=STREAMS, destinations={paused.id: paused}),
        until=lambda known: known.progress.why,
    )
    told = ask(gateway, "GET", "/held").json()
    assert (told["state"], told["waits_because"]) == ("running", "the destination is paused")
    assert told["sent"] == 0
    carry_out(kafka, place, configuration=Configuration(streams=STREAMS))
    told = ask(gateway, "GET", "/held").json()
    assert (told["state"], told["failed_because"]) == ("failed", "the destination was removed")
    assert queued(kafka, "held") == []


def test_only_who_may_replays_only_what_is_theirs(gateway: RunningGateway) -> None:
    assert refused(create(gateway, key=READS)) == (403, "scope_missing")
    assert refused(ask(gateway, "DELETE", "/whole", key=READS)) == (403, "scope_missing")
    assert ask(gateway, "GET", key=READS).status_code == 200
    for method, path in (("GET", ""), ("GET", "/whole"), ("DELETE", "/whole")):
        assert refused(ask(gateway, method, path, key=ELSEWHERE)) == (404, "unknown_stream")
        foreign = ask(gateway, method, path, key=ELSEWHERE, stream="foreign")
        assert foreign.status_code == 200 if not path else refused(foreign)[0] == 404
    assert refused(create(gateway, key=ELSEWHERE)) == (404, "unknown_stream")
    assert refused(create(gateway, destination="x")) == (404, "unknown_destination")
    assert refused(ask(gateway, "GET", "/nobodys")) == (404, "unknown_replay")
    assert refused(ask(gateway, "POST", destination="to")) == (400, "bad_object")
    assert refused(create(gateway, to=SINCE)) == (400, "bad_object")
    assert refused(create(gateway, rate_per_s=0)) == (400, "bad_object")
    assert refused(create(gateway, id="No name")) == (400, "bad_object")
    assert refused(ask(gateway, "GET", "?before=x")) == (400, "bad_query")


def test_a_tenant_has_so_many_at_a_time_and_a_list_has_pages(
    gateway: RunningGateway,
) -> None:
    ids = [f"many-{number}" for number in range(routes.RUNNING_MAX)]
    assert [create(gateway, id=each).status_code for each in ids] == [201] * len(ids)
    answer = create(gateway, id="too-many")
    assert refused(answer) == (409, "bound_reached")
    first = ask(gateway, "GET", "?limit=2").json()
    assert [each["id"] for each in first["replays"]] == ["many-3", "many-2"]
    second = ask(gateway, "GET", f"?limit=2&before={first['next']}").json()
    assert [each["id"] for each in second["replays"]] == ["many-1", "many-0"]
    assert ask(gateway, "GET", "?destination=other").json()["replays"] == []
    for each in ids:
        assert ask(gateway, "DELETE", f"/{each}").json()["state"] == "cancelled"


def test_the_commands_do_the_same(gateway: RunningGateway) -> None:
    def hifi(*arguments: str) -> str:
        env = {"HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": OWNS}
        ran = CliRunner().invoke(app, ["replays", *arguments], env=env)
        return ran.stdout + ran.stderr + str(ran.exception or "")

    order = ("create", STREAM, "--destination", "to", "--from", SINCE)
    assert f"{COUNT} events are in the span" in hifi(*order, "--dry-run")
    said = hifi(*order, "--id", "told", "--rate", "3")
    assert f"replay told is running: 0 of {COUNT} events read, 0 sent" in said
    assert "replay_in_use" in hifi(*order, "--id", "told", "--rate", "4")
    told = json.loads(hifi("get", STREAM, "told", "-o", "json"))
    assert (told["id"], told["rate_per_s"]) == ("told", 3.0)
    assert hifi("list", STREAM, "-o", "name").splitlines()[0] == "told"
    assert "running" in hifi("list", STREAM, "--destination", "to", "--limit", "1")
    assert "told is cancelled" in hifi("cancel", STREAM, "told")
    assert "no replay 'nobodys'" in hifi("get", STREAM, "nobodys")
