"""Events are read from a real Kafka where an index places them, plus the newest up to a time."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest

from deploy.local.cluster import Cluster
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.event import places
from shared.event.envelope import event_headers
from shared.event.places import PLACES_PATH, Places
from shared.event.record import RecordOut
from shared.event.times import rfc3339
from shared.event.topics import stream_spec, stream_topic
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.metrics import Metrics
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, running_gateway
from tests.support.kafka.kafka_log import write_rows

pytestmark = pytest.mark.integration

COUNT = 20


@dataclass
class IndexedStream:
    """A stream with events in order, and an index that answers with `says`."""

    stream: str = field(default_factory=lambda: f"placed-{uuid.uuid4().hex}")
    says: Any = field(default_factory=Places)
    url: str = ""

    def page(self, asked: Mapping[str, str]) -> bytes:
        assert asked["topic"] == stream_topic(self.stream)
        return msgspec.json.encode(self.says)

    def look(self, **query: Any) -> httpx.Response:
        return httpx.get(f"{self.url}/v1/streams/{self.stream}/events", params=query, timeout=30)


@pytest.fixture(scope="module")
def indexed(kafka: Cluster) -> Iterator[IndexedStream]:
    made, servers = IndexedStream(), kafka.bootstrap_servers
    topic = stream_topic(made.stream)

    async def write() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing([stream_spec(made.stream)])
        for number in range(COUNT):
            headers = event_headers(event_id=f"e{number}", event_time_ms=7, accepted_at_ms=8)
            key = None if number % 3 else b"odd"
            await write_rows(servers, [RecordOut(topic, key, b"{}", headers)])

    asyncio.run(write())
    port = Metrics().serve(host="127.0.0.1", port=0, queries={PLACES_PATH: made.page})
    observe = f"http://127.0.0.1:{port}"
    settings = Settings(auth="off", bootstrap_servers=servers, observe=observe)
    config = FixedConfig(Configuration(streams={made.stream: Stream(made.stream)}))
    with running_gateway(FakePublisher([]), config, settings) as running:
        made.url = running.url
        yield made


def test_what_the_index_says_is_looked_at_in_the_log(indexed: IndexedStream) -> None:
    def found(says: Any) -> tuple[list[str], str]:
        indexed.says = says
        page = indexed.look(id="e17").json()
        assert page["is_complete"]
        return [event["id"] for event in page["events"]], page["index"]

    assert found(Places()) == (["e17"], "none")
    (event,) = indexed.look(id="e17").json()["events"]
    partition, offset = map(int, event["place"].split(":"))
    # The hash of the id has other places, too: one of them is gone, and one never existed.
    others = ((partition, offset + 1, offset + 2), (0, 10_000, 10_001), (9, 0, 1))
    assert found(Places(((partition, offset, offset + 1), *others))) == (["e17"], "found")
    # The index has only other places: the log is read, as if there was no index.
    assert found(Places(others)) == (["e17"], "none")
    assert found(Places(is_behind=True)) == (["e17"], "behind")
    # The index answers nonsense, which counts as no answer.
    assert found("nonsense") == (["e17"], "away")


def test_what_the_index_has_all_ids_of_is_not_read(
    indexed: IndexedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_NEAR", 1)
    everything = {event["id"]: event for event in indexed.look().json()["events"]}
    partition, offset = map(int, everything["e17"]["place"].split(":"))

    def found(*known: tuple[int, int, int]) -> list[str]:
        indexed.says = Places(known=known)
        page = indexed.look(id="e17").json()
        assert (page["index"], page["is_complete"], page["older"]) == ("none", True, None)
        return [event["id"] for event in page["events"]]

    # The index says that the event does not exist, and is trusted.
    assert found((partition, 0, 1_000)) == []
    assert found((partition, 0, offset), (partition, offset + 1, 1_000)) == ["e17"]
    assert found((partition, offset - 1, offset + 1)) == []
    assert found((partition + 1, 0, 1_000)) == ["e17"]


def test_of_a_key_what_the_index_does_not_know_is_for_who_goes_on(indexed: IndexedStream) -> None:
    everything = {event["id"]: event for event in indexed.look().json()["events"]}
    partition, offset = map(int, everything["e18"]["place"].split(":"))
    indexed.says = Places(((partition, offset, offset + 1),))
    found = indexed.look(key="odd").json()
    assert ([event["id"] for event in found["events"]], found["index"]) == (["e18"], "found")
    rest = indexed.look(key="odd", before=found["older"]).json()
    assert [event["id"] for event in rest["events"]] == [f"e{n}" for n in range(15, -1, -3)]
    assert (rest["index"], rest["older"], rest["is_complete"]) == ("none", None, True)


def test_what_was_stored_until_a_time_comes_with_the_newest_first(indexed: IndexedStream) -> None:
    everything = indexed.look().json()["events"]
    assert [event["id"] for event in everything] == [f"e{n}" for n in reversed(range(COUNT))]
    middle_ms = everything[COUNT // 2]["stored_at_ms"]
    found = indexed.look(until=rfc3339(middle_ms)).json()
    assert found["events"] == [it for it in everything if it["stored_at_ms"] < middle_ms]
    assert (found["looked_at"], found["older"]) == (len(found["events"]), None)


@pytest.mark.parametrize(
    "query",
    [
        {"request": "01a1ff25-35c5-7a5b-b0e6-761692f0e9b6", "after": "1"},
        {"until": "2026-11-24T10:00:00Z", "before": "1"},
        {"outcome": "lost"},
        {"outcome": "dead", "after": "1"},
    ],
)
def test_a_query_that_cannot_be_is_refused(indexed: IndexedStream, query: dict[str, Any]) -> None:
    answer = indexed.look(**query)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")
