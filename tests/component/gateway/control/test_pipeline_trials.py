"""The route that tries a pipeline asks the pipelines service, and refuses bad requests first."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import ApiKey, Scope, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import TRIALS
from shared.event.trial import TrialAnswer, TrialRow
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.gateway.trial_answers import Trier, trier

PATH = "/v1/pipelines/sales/try"
DOCUMENT: dict[str, Any] = {
    "from": {"stream": "orders"},
    "schema": "country STRING",
    "to": [{"stream": "eu", "when": "country = 'DE'"}, {"dead": True}],
    "match": "first",
}
ROWS = (TrialRow(1, "passed", "", "eu", None, "{}"), TrialRow(2, "dead", "unread", "", "k", "7"))
ANSWER = TrialAnswer(given=("{}", "7"), rows=ROWS, left_out=3)
SCOPES: dict[str, Scope] = {"ours": "admin", "theirs": "admin", "some": "admin", "reader": "read"}
TEXTS = {
    name: new_text(kind="secret", key_id=name, entropy=bytes([nth]) * 20)
    for nth, name in enumerate(SCOPES)
}


@pytest.fixture
def config() -> FixedConfig:
    streams = {name: Stream(name) for name in ("orders", "eu")} | {"x": Stream("x", tenant="them")}
    keys = {
        name: ApiKey(
            name,
            (secret_from(TEXTS[name], signs=False),),
            tenant="them" if name == "theirs" else "default",
            scopes=frozenset({scope}),
            streams=frozenset({"orders"}) if name == "some" else frozenset(),
        )
        for name, scope in SCOPES.items()
    }
    return FixedConfig(Configuration(streams=streams, keys=keys))


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([])


@pytest.fixture
def gateway(publisher: FakePublisher, config: FixedConfig) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config, Settings(auth="keys")) as running:
        yield running


@pytest.fixture
def answering(publisher: FakePublisher, gateway: RunningGateway) -> Iterator[Trier]:
    assert gateway.port, "the gateway must run, so that it follows the topic"
    with trier(publisher, ANSWER) as trying:
        yield trying


def try_out(gateway: RunningGateway, key: str = "ours", /, **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {TEXTS[key]}"}
    return gateway.client.post(PATH, json=body, headers=headers)


def code(response: httpx.Response) -> tuple[int, str, str | None]:
    problem = response.json()
    return response.status_code, problem["code"], problem.get("pointer")


def test_what_comes_of_events_is_answered_and_nothing_is_stored(
    gateway: RunningGateway, answering: Trier, config: FixedConfig
) -> None:
    before = config.configuration
    answer = try_out(gateway, document=DOCUMENT, events=[{"country": "DE"}, 7])
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "given": ["{}", "7"],
        "rows": [
            {"of": 1, "outcome": "passed", "reason": "", "target": "eu", "key": None}
            | {"value": "{}"},
            {"of": 2, "outcome": "dead", "reason": "unread", "target": "", "key": "k"}
            | {"value": "7"},
        ],
        "left_out": 3,
    }
    (asked,) = answering.asked
    assert asked.tenant == "default"
    document = json.loads(bytes(asked.document))
    assert (document["name"], document["schema"]) == ("sales", "country STRING")
    assert [json.loads(bytes(each)) for each in asked.events] == [{"country": "DE"}, 7]
    assert config.configuration is before
    assert gateway.store.recorded == []


def test_what_there_is_is_tried_on_the_newest_events(
    gateway: RunningGateway, answering: Trier
) -> None:
    assert code(try_out(gateway)) == (404, "unknown_pipeline", None)
    headers = {"authorization": f"Bearer {TEXTS['ours']}"}
    made = gateway.client.put("/v1/pipelines/sales", json=DOCUMENT, headers=headers)
    assert try_out(gateway).status_code == 200
    # A document as a GET shows it is accepted, too.
    assert try_out(gateway, document=made.json(), newest=100).status_code == 200
    first, second = answering.asked
    assert (first.newest, first.events) == (10, ())
    assert (second.newest, bytes(second.document)) == (100, bytes(first.document))
    assert code(try_out(gateway, "theirs"))[:2] == (404, "unknown_pipeline")
    theirs = DOCUMENT | {"from": {"stream": "x"}}
    assert code(try_out(gateway, "theirs", document=theirs))[:2] == (409, "pipeline_in_use")
    assert code(try_out(gateway, "some"))[:2] == (403, "stream_forbidden")


def test_who_may_not_read_a_stream_learns_nothing_of_its_events(
    gateway: RunningGateway, answering: Trier
) -> None:
    assert code(try_out(gateway, "reader", document=DOCUMENT))[:2] == (403, "scope_missing")
    assert code(try_out(gateway, "theirs", document=DOCUMENT))[:2] == (404, "unknown_stream")
    assert code(try_out(gateway, "some", document=DOCUMENT))[:2] == (403, "stream_forbidden")
    assert answering.asked == []


def test_what_is_wrong_with_what_is_asked_is_told_at_once(
    gateway: RunningGateway, answering: Trier
) -> None:
    for wrong, pointer in (
        ({"events": {}}, "/events"),
        ({"events": [1] * 101}, "/events"),
        ({"newest": 0}, "/newest"),
        ({"newest": 101}, "/newest"),
        ({"newest": True}, "/newest"),
        ({"document": []}, "/document"),
        ({"dry_run": True}, "/dry_run"),
        ({"events": ["x" * 600_000]}, None),
    ):
        answer = try_out(gateway, **({"document": DOCUMENT} | wrong))
        assert code(answer) == (400, "bad_object", pointer), wrong
    shape = try_out(gateway, document=DOCUMENT | {"steps": [{"wheer": "x"}]})
    assert code(shape)[:2] == (422, "bad_pipeline")
    assert answering.asked == []


def test_what_spark_finds_wrong_is_told_with_its_place(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    with trier(publisher, TrialAnswer("there is no column kind", "/steps/0/where")):
        answer = try_out(gateway, document=DOCUMENT)
    assert code(answer) == (422, "bad_pipeline", "/steps/0/where")
    assert answer.json()["detail"] == "there is no column kind."


def test_what_was_cut_off_is_not_the_pipelines_fault(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    with trier(publisher, TrialAnswer("it took longer than 15 s", is_unfinished=True)):
        answer = try_out(gateway, document=DOCUMENT)
    assert code(answer)[:2] == (503, "not_tried")
    assert answer.json()["detail"].startswith("it took longer than 15 s. Ask again")


def test_that_nobody_answers_is_said_and_what_to_do(
    gateway: RunningGateway, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.fleet.trial_news.ANSWER_WITHIN_S", 0.05)
    answer = try_out(gateway, document=DOCUMENT)
    assert code(answer)[:2] == (503, "not_tried")
    assert answer.headers["retry-after"] == "5"
    assert len(publisher.told.logs[TRIALS]) == 1
