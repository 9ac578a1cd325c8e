"""A replacement is built beside its pipeline, and takes its place in one transaction."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.control.replacing.switching import Switching
from gateway.control.stores.changes import KafkaControlStore
from gateway.problems import Problem
from shared.config.configuration import Configuration, Stream
from shared.config.pipeline_state import PipelineState
from shared.config.table import Table
from shared.event.times import HOUR_MS
from shared.event.topic_safety import Copies
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import ConfigFeed
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

PATH = "/v1/pipelines/sales"
BUILT = f"{PATH}/replacement"
BY_COUNTRY: dict[str, Any] = {
    "from": {"stream": "orders"},
    "schema": "country STRING",
    "steps": [{"window": {"every": "1 hour", "by": ["country"], "compute": {"n": "count(*)"}}}],
    "to": [{"table": "sums"}],
}
DAILY: dict[str, Any] = BY_COUNTRY | {
    "steps": [{"window": {"every": "1 day", "compute": {"n": "count(*)"}}}]
}


# The topics of tables of which this machine has copies.
COPIES = ("hifi.table.sums", "hifi.table.sums.2")
PLAIN: dict[str, Any] = DAILY | {"steps": [], "to": [{"stream": "eu"}]}


@pytest.fixture
def config() -> FixedConfig:
    streams = {"orders": Stream("orders"), "eu": Stream("eu")}
    return FixedConfig(
        Configuration(streams=streams, tables={"sums": Table("sums", written_by="sales")})
    )


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    with running_gateway(FakePublisher([]), config) as running:
        assert running.client.put(PATH, json=BY_COUNTRY).status_code == 201
        yield running


def look(gateway: RunningGateway, config: FixedConfig, copies: tuple[str, ...] = COPIES) -> None:
    """Look for finished replacements, as each gateway does regularly."""
    switching = Switching(config, gateway.store, lambda table: table.topic in copies)
    asyncio.run_coroutine_threadsafe(switching.look(), gateway.loop).result(timeout=30)


def tell(
    gateway: RunningGateway, config: FixedConfig, behind: int, *, has_caught_up: bool = False
) -> None:
    document = config.configuration.replacement_of("sales")
    assert document is not None
    state = PipelineState(
        document.fingerprint, "replacing", behind=behind, has_caught_up=has_caught_up
    )
    gateway.store.states[document.title] = state


def test_it_is_built_beside_what_runs_and_takes_its_place_with_its_tables(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    made = gateway.client.put(BUILT, params={"from": "7d"}, json=DAILY)
    assert made.status_code == 200, made.text
    document = made.json()["document"]
    assert (document["generation"], document["steps"]) == (2, made.json()["document"]["steps"])
    assert document["from"]["start"] > 0
    assert {"hifi.kept.sales.2", "hifi.table.sums.2"} <= gateway.store.topics.keys()
    assert gateway.client.get(PATH).json()["generation"] == 1
    assert [table.generation for table in config.configuration.followed_tables] == [1, 2]
    look(gateway, config)
    tell(gateway, config, behind=1_000_000)
    look(gateway, config)
    assert gateway.client.get(BUILT).json()["state"]["behind"] == 1_000_000
    assert gateway.client.get(PATH).json()["generation"] == 1
    # A small backlog is not enough, either: nothing has been read yet.
    tell(gateway, config, behind=10)
    look(gateway, config)
    assert gateway.client.get(PATH).json()["generation"] == 1
    tell(gateway, config, behind=10, has_caught_up=True)
    # Without a copy of the new table, readers here would have no answer.
    look(gateway, config, COPIES[:1])
    assert gateway.client.get(PATH).json()["generation"] == 1
    look(gateway, config)
    look(gateway, config)
    assert gateway.client.get(PATH).json()["generation"] == 2
    assert gateway.client.get(PATH).json()["steps"][0]["window"]["every"] == "1 day"
    assert config.configuration.tables["sums"].generation == 2
    assert config.configuration.replacements == {}
    assert gateway.client.get(BUILT).status_code == 404


def test_what_is_given_up_is_never_found_by_what_is_built_next(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    gateway.client.put(BUILT, json=DAILY)
    tell(gateway, config, behind=0, has_caught_up=True)
    assert gateway.client.delete(BUILT).status_code == 204
    look(gateway, config)
    assert gateway.client.get(PATH).json()["generation"] == 1
    assert gateway.client.delete(BUILT).status_code == 404
    again = gateway.client.put(BUILT, json=DAILY)
    assert again.json()["document"]["generation"] == 3
    assert config.configuration.replacements["sales"].tables == {"sums": 3}
    # A second PUT during a build starts another replacement.
    more = gateway.client.put(BUILT, json=DAILY)
    assert more.json()["document"]["generation"] == 4


def test_what_kafka_has_deleted_of_what_it_is_to_be_built_from_is_told(
    gateway: RunningGateway,
) -> None:
    gateway.store.begins["orders"] = [now_ms() - HOUR_MS]
    note = gateway.client.put(f"{BUILT}?from=7d", json=DAILY).json()["state"]["note"]
    assert note.startswith("Kafka has deleted events of orders: 1 of its Kafka partitions")
    assert note.endswith("A window would miss restored events: they reach Kafka too late.")
    for begin in ("30m", "earliest"):
        answer = gateway.client.put(f"{BUILT}?from={begin}", json=DAILY)
        assert "note" not in answer.json()["state"]


def test_a_pipeline_that_is_removed_takes_along_what_is_built_for_it(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    gateway.client.put(BUILT, json=DAILY)
    assert gateway.client.delete(PATH).status_code == 204
    assert config.configuration.documents == []
    assert gateway.client.get(BUILT).status_code == 404
    assert gateway.client.put(PATH, json=BY_COUNTRY).json()["generation"] == 3
    assert config.configuration.replacement_of("sales") is None


@pytest.mark.parametrize(
    ("path", "document", "status", "said"),
    [
        (f"{BUILT}?from=soon", DAILY, 400, "must be like 90m, 12h"),
        (BUILT, PLAIN, 422, "PUT it as usual"),
        (BUILT, DAILY | {"from": {"stream": "eu"}}, 422, "where the pipeline has its position"),
        (BUILT, DAILY | {"colour": "red"}, 422, "no such setting"),
        (BUILT, DAILY | {"to": [{"table": "nowhere"}]}, 404, "nowhere"),
        ("/v1/pipelines/none/replacement", DAILY, 404, "no pipeline"),
    ],
)
def test_what_cannot_take_its_place_is_refused(
    gateway: RunningGateway, path: str, document: Any, status: int, said: str
) -> None:
    answer = gateway.client.put(path, json=document)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text


def test_what_is_being_built_takes_room_and_there_may_be_none(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    tables = {"sums": Table("sums", written_by="sales", bytes_max=2**40)}
    config.configuration = replace(config.configuration, tables=tables)
    answer = gateway.client.put(BUILT, json=DAILY)
    assert (answer.status_code, answer.json()["code"]) == (409, "bound_reached"), answer.text


def test_a_stream_or_table_that_it_names_stays(gateway: RunningGateway) -> None:
    gateway.client.put(BUILT, json=DAILY | {"to": [{"table": "sums"}, {"stream": "eu"}]})
    assert gateway.client.delete("/v1/streams/eu").status_code == 409


def test_without_kafka_the_states_of_pipelines_are_a_problem_that_passes() -> None:
    store = KafkaControlStore("127.0.0.1:1", ConfigFeed("127.0.0.1:1"), Copies(1, 1))

    async def ask() -> None:
        with pytest.raises(Problem) as caught:
            await store.pipeline_states()
        assert (caught.value.code, caught.value.status) == ("kafka_unavailable", 503)

    asyncio.run(ask())
