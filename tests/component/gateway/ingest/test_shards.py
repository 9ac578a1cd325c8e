"""Events of a stream with shards: each is in its shard's Kafka partition, or is refused."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.config.partitioning import Partitioning
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

TOPIC = stream_topic("rows")
EVENTS = "/v1/streams/rows/events"
SHARDS = {"pointer": "/at/shard", "shards": ["eu-1", "eu-2", "7"]}


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    rows = Stream("rows", partitioning=Partitioning("/at/shard", ("eu-1", "eu-2", "7")))
    config = FixedConfig(Configuration(streams={"rows": rows}))
    with running_gateway(publisher, config, Settings(auth="off")) as running:
        yield running


def post(
    gateway: RunningGateway, events: Any, path: str = EVENTS, **headers: str
) -> httpx.Response:
    return gateway.client.post(path, json=events, headers=headers)


def put(gateway: RunningGateway, name: str, **body: Any) -> httpx.Response:
    return gateway.client.put(f"/v1/streams/{name}", json=body)


def an_event(event_id: str, shard: Any, **more: Any) -> dict[str, Any]:
    return {"id": event_id, "at": {"shard": shard}, **more}


def ids(publisher: FakePublisher, topic: str = TOPIC) -> list[list[str]]:
    return [[event.id for event in log] for log in publisher.logs[topic]]


def test_each_event_lies_in_the_partition_of_its_shard_whatever_its_key(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    shards = ["eu-2", "eu-1", 7, "7", "eu-2"]
    sent = [an_event(f"e{n}", shard, partitionkey="k") for n, shard in enumerate(shards)]
    assert post(gateway, sent).status_code == 200
    assert post(gateway, an_event("lone", "eu-1")).status_code == 200
    assert ids(publisher) == [["e1", "lone"], ["e0", "e4"], ["e2", "e3"], []]
    assert {event.key for event in publisher.stored(TOPIC)} == {b"k", None}


def test_an_event_of_no_shard_is_refused_by_itself(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    odd: list[Any] = ["eu-3", True, 7.0, None, ["eu-1"], "x" * 500]
    sent = [an_event("good", "eu-1"), *(an_event(f"e{n}", shard) for n, shard in enumerate(odd))]
    answer = post(gateway, [*sent, {"id": "none"}])
    assert (answer.status_code, answer.json()["accepted"]) == (207, 1)
    results = answer.json()["results"]
    assert [each["index"] for each in results] == [*range(1, 8)]
    assert [each["id"] for each in results] == [*(f"e{n}" for n in range(6)), "none"]
    assert {each["code"] for each in results} == {"unknown_shard"}
    assert {each["retryable"] for each in results} == {False}
    assert [each["pointer"] for each in results] == [f"/{n}/at/shard" for n in range(1, 8)]
    assert results[0]["detail"] == "'eu-3' is none of the stream's 3 shards"
    assert results[1]["detail"].startswith("it names none of the stream's 3 shards")
    assert len(results[5]["detail"]) < 200
    assert ids(publisher) == [["good"], [], [], []]


def test_a_request_of_such_events_alone_is_422(gateway: RunningGateway) -> None:
    alone = post(gateway, an_event("a", "eu-9"))
    assert (alone.status_code, alone.json()["code"]) == (422, "all_rejected")
    assert alone.json()["results"][0]["pointer"] == "/at/shard"
    both = [an_event("a", "eu-9"), an_event("b", "eu-1")]
    strict = post(gateway, both, prefer="handling=strict")
    assert (strict.status_code, strict.json()["code"]) == (422, "strict_rejected")


def test_a_rehearsal_says_where_each_would_lie(gateway: RunningGateway) -> None:
    answer = post(gateway, [an_event("a", "eu-2"), an_event("b", "7")], f"{EVENTS}?dry_run=true")
    assert [each["partition"] for each in answer.json()["results"]] == [1, 2]


def test_each_shard_has_a_kafka_partition_and_may_get_company(gateway: RunningGateway) -> None:
    answer = put(gateway, "made", partitioning={"pointer": "/a", "shards": ["x", "y"]})
    assert (answer.status_code, answer.json()["partition_count"]) == (201, 2)
    grown = {"pointer": "/a", "shards": ["x", "y", "z"]}
    answer = put(gateway, "made", partitioning=grown)
    assert (answer.status_code, answer.json()["partition_count"]) == (200, 3)
    assert answer.json()["partitioning"] == grown
    assert gateway.client.get("/v1/streams/made").json()["partitioning"] == grown
    # The stream is empty, so its shards may still change.
    fewer = put(gateway, "made", partitioning={"pointer": "/b", "shards": ["z", "x"]})
    assert (fewer.status_code, fewer.json()["partition_count"]) == (200, 3)
    assert put(gateway, "made").json()["partitioning"] is None


def test_where_events_lie_their_shards_stay_where_they_are(gateway: RunningGateway) -> None:
    assert post(gateway, an_event("a", "eu-1")).status_code == 200
    for wanted in (
        None,
        {**SHARDS, "pointer": "/shard"},
        {**SHARDS, "shards": ["eu-2", "eu-1", "7"]},
        {**SHARDS, "shards": ["eu-1", "eu-2"]},
        {**SHARDS, "shards": ["eu-1", "eu-2", "8", "7"]},
    ):
        refused = put(gateway, "rows", partitioning=wanted)
        assert (refused.status_code, refused.json()["code"]) == (409, "shards_in_use")
        assert refused.json()["pointer"] == "/partitioning"
        assert refused.json()["partitioning"] == SHARDS
    more = {**SHARDS, "shards": [*SHARDS["shards"], "us-1"]}
    assert put(gateway, "rows", partitioning=more).status_code == 200
    assert post(gateway, an_event("b", "us-1")).status_code == 200
    # This holds even after the stream was removed: its events are still there.
    assert gateway.client.delete("/v1/streams/rows").status_code == 204
    assert put(gateway, "rows").json()["code"] == "shards_in_use"
    assert put(gateway, "rows", partitioning=more).status_code == 201


def test_a_stream_with_events_gets_no_shards(gateway: RunningGateway) -> None:
    assert put(gateway, "plain").status_code == 201
    assert post(gateway, {"id": "a"}, "/v1/streams/plain/events").status_code == 200
    refused = put(gateway, "plain", partitioning={"pointer": "/a", "shards": ["x"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "shards_in_use")


def test_what_cannot_be_says_where(gateway: RunningGateway) -> None:
    for partitioning, pointer in (
        ({"pointer": "/a", "shards": ["x", "x"]}, "/partitioning/shards"),
        ({"pointer": "a", "shards": ["x"]}, "/partitioning/pointer"),
        ({"pointer": "/a", "shards": ["x"], "sort": 1}, "/partitioning/sort"),
        ({"pointer": "/a", "shards": [f"s{n}" for n in range(1001)]}, "/partitioning/shards"),
        ("eu", "/partitioning"),
    ):
        answer = put(gateway, "odd", partitioning=partitioning)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_object"), answer.text
        assert answer.json()["pointer"] == pointer
