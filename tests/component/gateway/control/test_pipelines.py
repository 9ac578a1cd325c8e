"""Pipelines over HTTP: their shape is checked, tenants are separate, and their state is shown."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.problems import Problem
from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, ApiKey, Scope, Tenant, new_text, secret_from
from shared.config.configuration import REMOVED_KEPT_MS, Configuration, RemovedPipeline, Stream
from shared.config.partitioning import Partitioning
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState
from shared.config.table import Table
from shared.runtime.clock import now_ms
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

PATH = "/v1/pipelines/sales"
DOCUMENT: dict[str, Any] = {
    "from": {"stream": "orders"},
    "schema": "type STRING, country STRING",
    "steps": [
        {"where": "type = 'sale'"},
        {"select": {"country": "country", "at": "hifi.event_time"}},
    ],
    "to": [{"stream": "eu", "when": "country = 'DE'"}, {"dead": True}],
    "match": "first",
}
# The counts of a pipeline that has lost nothing and ended no executor.
UNHURT = {"lost": 0, "lost_last": "", "executors_ended": 0, "executor_ended_at_ms": 0}
STREAMS = ("orders", "eu", "us")
KEYS = {
    name: new_text(kind="secret", key_id=name, entropy=bytes(ENTROPY_BYTES))
    for name in ("ours", "theirs", "some")
}


@pytest.fixture
def config() -> FixedConfig:
    streams = {name: Stream(name) for name in STREAMS} | {"secret": Stream("secret", tenant="them")}
    admin: frozenset[Scope] = frozenset({"admin", "read"})
    keys = [
        ApiKey("ours", (secret_from(KEYS["ours"], signs=False),), scopes=admin),
        ApiKey("theirs", (secret_from(KEYS["theirs"], signs=False),), tenant="them", scopes=admin),
        ApiKey(
            "some",
            (secret_from(KEYS["some"], signs=False),),
            scopes=admin,
            streams=frozenset({"orders"}),
        ),
    ]
    return FixedConfig(Configuration(streams=streams, keys={key.id: key for key in keys}))


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as running:
        running.client.headers["authorization"] = f"Bearer {KEYS['ours']}"
        yield running


def put(gateway: RunningGateway, path: str = PATH, /, **changed: Any) -> httpx.Response:
    return gateway.client.put(path, json=DOCUMENT | changed)


def as_key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


def code(response: httpx.Response) -> tuple[int, str, str | None]:
    problem = response.json()
    return response.status_code, problem["code"], problem.get("pointer")


def test_a_pipeline_is_made_shown_listed_changed_and_removed(gateway: RunningGateway) -> None:
    assert code(gateway.client.get(PATH)) == (404, "unknown_pipeline", None)
    made = put(gateway)
    assert made.status_code == 201, made.text
    assert made.json()["steps"] == DOCUMENT["steps"]
    state = {"standing": "checking", "why": "", "pointer": "", **UNHURT}
    assert made.json()["state"] == state
    shown = gateway.client.get(PATH)
    assert shown.json() == made.json()
    assert shown.headers["etag"] == made.headers["etag"]
    line: dict[str, object] = {"name": "sales", "reads": "orders", "writes": ["eu"]}
    line |= {"standing": "checking", "why": "", "executors_ended": 0}
    assert gateway.client.get("/v1/pipelines").json() == {"pipelines": [line], "removed": []}
    # The answer of a GET can be PUT as it is.
    again = gateway.client.put(PATH, json=shown.json())
    assert (again.status_code, again.json()) == (200, shown.json())
    changed = put(gateway, match="all")
    assert changed.json()["match"] == "all"
    assert gateway.client.delete(PATH).status_code == 204
    assert code(gateway.client.delete(PATH)) == (404, "unknown_pipeline", None)
    removed = gateway.client.get("/v1/pipelines").json()["removed"]
    assert [each["name"] for each in removed] == ["sales"]


def test_columns_come_back_in_the_order_in_which_they_were_sent(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    put(gateway)
    assert list(gateway.client.get(PATH).json()["steps"][1]["select"]) == ["country", "at"]
    stored = config.configuration.pipelines["sales"]
    assert list(Pipeline.of(stored.to_fields()).to_fields()["steps"][1]["select"]) == [
        "country",
        "at",
    ]


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"steps": [{"where": "ok"}, {"wher": "x"}]}, "/steps/1"),
        ({"steps": [{"window": {"every": "1 minute"}}]}, "/steps/0/window/compute"),
        ({"steps": [{"where": "ok", "where2": "x"}]}, "/steps/0/where2"),
        ({"steps": [{"select": {"a b": "x"}}]}, "/steps/0/select"),
        ({"to": [{"nowhere": "t"}]}, "/to/0"),
        ({"to": [{"stream": "eu"}, {"stream": "us"}]}, "/to/1"),
        ({"match": None}, "/match"),
        ({"from": {"stream": "orders", "start": "soon"}}, "/from/start"),
        ({"to": [{"stream": "orders"}]}, "/to/0/stream"),
        ({"colour": "red"}, "/colour"),
        ({"name": "other"}, "/name"),
        ({"tenant": "them"}, "/tenant"),
        ({"generation": 2}, "/generation"),
    ],
)
def test_a_wrong_shape_is_refused_at_once_with_a_pointer(
    gateway: RunningGateway, config: FixedConfig, changed: dict[str, Any], pointer: str
) -> None:
    assert code(put(gateway, **changed)) == (422, "bad_pipeline", pointer)
    assert config.configuration.pipelines == {}


def test_it_names_the_tenants_own_streams_and_no_others(gateway: RunningGateway) -> None:
    reads = put(gateway, **{"from": {"stream": "secret"}})
    assert code(reads) == (404, "unknown_stream", "/from/stream")
    writes = put(gateway, to=[{"stream": "eu"}, {"stream": "secret"}], match=None)
    assert code(writes) == (404, "unknown_stream", "/to/1/stream")
    # Another tenant's stream looks like one that does not exist.
    nowhere = put(gateway, to=[{"stream": "eu"}, {"stream": "nowhere"}], match=None)
    assert nowhere.json()["detail"].replace("nowhere", "secret") == writes.json()["detail"]


def test_another_tenants_pipeline_is_not_there(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    put(gateway)
    theirs = as_key("theirs")
    assert code(gateway.client.get(PATH, headers=theirs))[:2] == (404, "unknown_pipeline")
    assert code(gateway.client.delete(PATH, headers=theirs))[:2] == (404, "unknown_pipeline")
    assert gateway.client.get("/v1/pipelines", headers=theirs).json()["pipelines"] == []
    taken = gateway.client.put(PATH, headers=theirs, json=DOCUMENT)
    assert code(taken)[:2] == (409, "pipeline_in_use")
    assert config.configuration.pipelines["sales"].tenant == "default"


def test_a_key_for_some_streams_changes_pipelines_of_those_alone(gateway: RunningGateway) -> None:
    put(gateway)
    some = as_key("some")
    assert code(gateway.client.get(PATH, headers=some))[:2] == (403, "stream_forbidden")
    assert code(gateway.client.delete(PATH, headers=some))[:2] == (403, "stream_forbidden")
    assert code(gateway.client.put(PATH, headers=some, json=DOCUMENT))[:2] == (
        403,
        "stream_forbidden",
    )
    new = gateway.client.put("/v1/pipelines/new", headers=some, json=DOCUMENT)
    assert code(new) == (403, "stream_forbidden", "/to/0/stream")
    assert gateway.client.get("/v1/pipelines", headers=some).json()["pipelines"] == []


def test_a_name_stays_its_owners_until_nothing_is_left_to_read(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    gone = RemovedPipeline("sales", "them", "secret", 3, now_ms())
    known = config.configuration
    config.configuration = replace(known, removed_pipelines={"sales": gone})
    refused = put(gateway)
    assert code(refused)[:2] == (409, "pipeline_in_use")
    assert refused.json()["free_at"].startswith("20")
    long_ago = replace(gone, removed_at_ms=now_ms() - REMOVED_KEPT_MS - 1_000)
    config.configuration = replace(known, removed_pipelines={"sales": long_ago})
    put(gateway, "/v1/pipelines/other")
    assert put(gateway).status_code == 201


def test_one_that_is_made_again_goes_on_in_its_stream_with_the_same_ids(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    gone = RemovedPipeline("sales", "default", "orders", 3, now_ms())
    config.configuration = replace(config.configuration, removed_pipelines={"sales": gone})
    other = put(gateway, **{"from": {"stream": "us"}})
    assert code(other) == (422, "bad_pipeline", "/from/stream")
    assert put(gateway).json()["generation"] == 3
    assert code(put(gateway, **{"from": {"stream": "us"}}))[2] == "/from/stream"


def test_one_that_is_to_begin_with_what_kafka_has_deleted_is_told_so(
    gateway: RunningGateway,
) -> None:
    # One of the stream's Kafka partitions still reaches back far enough.
    gateway.store.begins["orders"] = [900_000, 1_001_500, 1_600_000]
    source = {"stream": "orders", "start": 1_000_000}
    note = put(gateway, **{"from": source}).json()["state"]["note"]
    assert note == (
        "Kafka has deleted events of orders: 2 of its Kafka partitions begin after"
        " 1970-01-01T00:16:40.000Z, the last of them at 1970-01-01T00:26:40.000Z. The pipeline does"
        " not read earlier events. If an archive has them, restore them to a stream of their own,"
        " and let another pipeline read it: `hifi streams put orders-earlier`, `hifi restore"
        " --stream"
        " orders --from 1970-01-01T00:16:40.000Z --to 1970-01-01T00:26:40.000Z --to-stream"
        " orders-earlier`."
    )
    # The pipeline has begun where it could, so the note is gone.
    assert "note" not in put(gateway, **{"from": source}).json()["state"]
    gateway.client.delete(PATH)
    # A recreated pipeline resumes.
    assert "note" not in put(gateway, **{"from": source}).json()["state"]
    for start in ("earliest", "latest", 1_600_000):
        another = put(gateway, f"{PATH}-{start}", **{"from": source | {"start": start}})
        assert (another.status_code, "note" in another.json()["state"]) == (201, False)


def test_what_an_archive_has_of_that_is_read_there(gateway: RunningGateway) -> None:
    gateway.store.begins["orders"] = [1_001_500]
    kept = {"from": {"stream": "orders"}, "to": [{"archive": "backup"}]}
    assert gateway.client.put("/v1/pipelines/orders-kept", json=kept).status_code == 201
    source = {"stream": "orders", "start": 1_000_000}
    note = put(gateway, **{"from": source}).json()["state"]["note"]
    assert note == (
        "Kafka has deleted events of orders: 1 of its Kafka partitions begin after"
        " 1970-01-01T00:16:40.000Z, the last of them at 1970-01-01T00:16:41.500Z. It reads the"
        " archive orders-kept from 1970-01-01T00:16:40.000Z on, as far as that has events."
    )


def test_a_pipeline_is_put_though_nobody_can_tell_where_its_stream_begins(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: str) -> list[int]:
        raise Problem("kafka_unavailable", "Kafka does not answer.")

    monkeypatch.setattr(gateway.store, "begins_ms", away)
    answer = put(gateway, **{"from": {"stream": "orders", "start": 0}})
    assert (answer.status_code, "note" in answer.json()["state"]) == (201, False)


def test_a_cycle_of_streams_is_refused_unless_it_is_wanted(gateway: RunningGateway) -> None:
    assert put(gateway, to=[{"stream": "eu"}]).status_code == 201
    plain: dict[str, Any] = {"steps": [], "match": None}
    back = put(
        gateway,
        "/v1/pipelines/back",
        **plain,
        **{"from": {"stream": "eu"}},
        to=[{"stream": "orders"}],
    )
    assert code(back) == (422, "bad_pipeline", "/to")
    assert "eu > orders > eu" in back.json()["detail"]
    wanted = [{"stream": "orders", "repost": True}]
    again = put(gateway, "/v1/pipelines/back", **plain, **{"from": {"stream": "eu"}}, to=wanted)
    assert again.status_code == 201


def test_a_stream_that_a_pipeline_names_is_not_removed(gateway: RunningGateway) -> None:
    put(gateway)
    for stream in ("orders", "eu"):
        refused = gateway.client.delete(f"/v1/streams/{stream}")
        assert code(refused)[:2] == (409, "stream_in_use")
        assert "sales" in refused.json()["detail"]
    assert gateway.client.delete("/v1/streams/us").status_code == 204


def test_what_has_been_judged_is_told_of_the_document_it_was_judged_of(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    put(gateway)
    first = config.configuration.pipelines["sales"]
    refused = PipelineState(first.fingerprint, "refused", "no such column", "/steps/0/where", 5)
    gateway.store.states["sales"] = refused
    why, at = "no such column", "/steps/0/where"
    state = {"standing": "refused", "why": why, "pointer": at, **UNHURT}
    assert gateway.client.get(PATH, params={"wait": 10}).json()["state"] == state
    assert gateway.client.get("/v1/pipelines").json()["pipelines"][0]["standing"] == "refused"
    changed = put(gateway, match="all").json()
    assert changed["state"]["standing"] == "checking"
    assert gateway.client.get(PATH).json()["state"]["standing"] == "checking"
    second = config.configuration.pipelines["sales"]
    gateway.store.states["sales"] = PipelineState(
        second.fingerprint, "running", executors_ended=3, executor_ended_at_ms=7
    )
    told = gateway.client.get(PATH, params={"wait": 1}).json()["state"]
    assert (told["standing"], told["executors_ended"]) == ("running", 3)
    assert told["executor_ended_at_ms"] == 7
    (line,) = gateway.client.get("/v1/pipelines").json()["pipelines"]
    assert line["executors_ended"] == 3
    assert code(gateway.client.get(PATH, params={"wait": 60}))[:2] == (400, "bad_query")


def test_nobody_has_more_pipelines_than_a_tenant_may(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    bounded = {"default": Tenant("default", pipelines_max=1)}
    config.configuration = replace(config.configuration, tenants=bounded)
    assert put(gateway).status_code == 201
    assert put(gateway).status_code == 200
    beyond = put(gateway, "/v1/pipelines/more")
    assert code(beyond)[:2] == (409, "bound_reached")
    # A removed pipeline stays known for a while, and counts.
    gateway.client.delete(PATH)
    assert code(put(gateway, "/v1/pipelines/more"))[:2] == (409, "bound_reached")
    assert put(gateway).status_code == 201


def test_a_change_is_made_only_of_what_was_seen(gateway: RunningGateway) -> None:
    etag = put(gateway).headers["etag"]
    put(gateway, match="all")
    late = gateway.client.put(PATH, json=DOCUMENT, headers={"if-match": etag})
    assert code(late)[:2] == (412, "changed_meanwhile")
    assert late.json()["changed"] == ["match"]


ENRICH = {"table": "customers", "key": "country", "as": "c", "schema": "name STRING"}


def test_a_pipeline_names_tables_of_its_own_tenant_and_writes_those_that_are_its_own(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    tables = {
        "customers": Table("customers"),
        "others": Table("others"),
        "sums": Table("sums", written_by="sales"),
        "theirs": Table("theirs", tenant="them"),
    }
    config.configuration = replace(config.configuration, tables=tables)
    made = put(gateway, steps=[{"enrich": ENRICH}], to=[{"table": "sums"}], match=None)
    assert made.status_code == 201, made.text
    assert gateway.client.get("/v1/pipelines").json()["pipelines"][0]["writes"] == ["sums"]
    for wrong, said, pointer in (
        ({"to": [{"table": "others"}]}, (409, "table_in_use"), "/to/0/table"),
        ({"to": [{"table": "theirs"}]}, (404, "unknown_table"), "/to/0/table"),
        (
            {"steps": [{"enrich": ENRICH | {"table": "theirs"}}]},
            (404, "unknown_table"),
            "/steps/0/enrich/table",
        ),
    ):
        document = {"steps": [{"enrich": ENRICH}], "to": [{"dead": True}], "match": None} | wrong
        assert code(put(gateway, **document)) == (*said, pointer)
    # A table that a pipeline names cannot be deleted or get another writer.
    for name in ("customers", "sums"):
        assert code(gateway.client.delete(f"/v1/tables/{name}"))[:2] == (409, "table_in_use")
    taken = gateway.client.put("/v1/tables/sums", json={})
    assert (taken.status_code, taken.json()["pointer"]) == (400, "/written_by")
    # A key for some of its streams neither sees nor changes the pipeline.
    assert code(gateway.client.get(PATH, headers=as_key("some")))[:2] == (403, "scope_missing")


WINDOW = {"window": {"every": "1 minute", "compute": {"n": "count(*)"}}}
KEPT = {"steps": [WINDOW], "to": [{"stream": "eu"}], "match": None}


def test_what_keeps_something_has_a_topic_for_it_and_begins_anew_when_it_is_made_again(
    gateway: RunningGateway,
) -> None:
    topics = gateway.store.topics
    put(gateway)
    assert "hifi.kept.sales" not in topics
    assert put(gateway, **KEPT).status_code == 200
    assert "hifi.kept.sales" in topics
    # The kept state covers all earlier events, so a change may not stop keeping it.
    assert code(put(gateway)) == (422, "bad_pipeline", "/steps")
    gateway.client.delete(PATH)
    again = put(gateway)
    assert (again.status_code, again.json()["generation"]) == (201, 2)
    gateway.client.delete(PATH)
    assert put(gateway, **KEPT).json()["generation"] == 3
    assert "hifi.kept.sales.3" in topics


def test_what_is_kept_has_as_many_copies_as_all_else_or_there_is_no_pipeline(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    gateway.store.problem = Problem("too_few_brokers", "start those that are down")
    assert code(put(gateway, **KEPT))[:2] == (503, "too_few_brokers")
    assert config.configuration.pipelines == {}


def test_rows_of_windows_go_to_no_stream_of_shards(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    laid = Stream("eu", partition_count=2, partitioning=Partitioning("/tenant", ("a", "b")))
    streams = {**config.configuration.streams, "eu": laid}
    config.configuration = replace(config.configuration, streams=streams)
    assert code(put(gateway, **KEPT)) == (422, "bad_pipeline", "/to/0/stream")
