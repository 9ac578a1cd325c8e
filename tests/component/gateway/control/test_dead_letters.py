"""Dead letters over HTTP: filters, pages, payloads on request only, and redrives within bounds."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, ApiKey, Scope, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from shared.retry.dead_letter import Place
from shared.runtime.kafka.only_writer import OvertakenError
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeDeadLetters,
    FixedConfig,
    RunningGateway,
    a_dead_letter,
    config_with,
    running_gateway,
)

PATH = "/v1/streams/orders/dead-letters"


@pytest.fixture
def resting() -> FakeDeadLetters:
    found = FakeDeadLetters()
    for offset in range(25):
        reason = "status_401" if offset % 2 else "status_400"
        found.letters.append(a_dead_letter(offset, reason=reason))
    found.letters.append(replace(a_dead_letter(99), stream="others"))
    return found


@pytest.fixture
def gateway(resting: FakeDeadLetters) -> Iterator[RunningGateway]:
    publisher = FakePublisher([stream_topic("orders")])
    with running_gateway(publisher, config_with("orders"), dead_letters=resting) as running:
        yield running


def test_they_are_listed_page_by_page_without_their_payloads(gateway: RunningGateway) -> None:
    found, after, pages = [], None, 0
    while pages == 0 or after is not None:
        query = {"reason": "status_401", "limit": "5", **({"after": after} if after else {})}
        page = gateway.client.get(PATH, params=query).json()
        found += page["dead_letters"]
        after, pages = page["next"], pages + 1
    assert [one["place"] for one in found] == [f"0:{n}" for n in range(1, 25, 2)]
    assert pages == 3
    assert all("data" not in one and not one["redriven"] for one in found)


def test_a_payload_is_shown_when_it_is_asked_for(gateway: RunningGateway) -> None:
    page = gateway.client.get(PATH, params={"id": "e3", "payload": "true"}).json()
    assert [one["data"] for one in page["dead_letters"]] == [{"id": "e3"}]


def test_a_dry_run_sends_nothing_and_twice_does_nothing_twice(
    gateway: RunningGateway, resting: FakeDeadLetters
) -> None:
    order = {"reason": "status_401", "rate_per_s": 50}
    dry = gateway.client.post(PATH + ":redrive", json={**order, "dry_run": True}).json()
    assert dry == {
        "redrive_id": None,
        "count": 12,
        "already": 0,
        "malformed": 0,
        "is_complete": True,
    }
    assert resting.marked == set()
    first = gateway.client.post(PATH + ":redrive", json=order).json()
    assert (first["count"], len(first["redrive_id"])) == (12, 32)
    assert resting.marked == {Place(0, n) for n in range(1, 25, 2)}
    again = gateway.client.post(PATH + ":redrive", json=order).json()
    assert (again["count"], again["already"]) == (0, 12)
    listed = gateway.client.get(PATH, params={"id": "e1"}).json()["dead_letters"]
    assert listed[0]["redriven"] is True


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"after": "17"}, "not a place"),
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-11-21T10:00"}, "with a zone"),
        ({"payload": "yes"}, "payload"),
        ({"stream": "x"}, "no such field"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    gateway: RunningGateway, query: dict[str, str], said: str
) -> None:
    answer = gateway.client.get(PATH, params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    "order",
    [{"limit": True}, {"limit": 0}, {"rate_per_s": 0}, {"dry_run": 1}, {"id": 7}, {"all": True}],
)
def test_an_order_that_makes_no_sense_is_refused(
    gateway: RunningGateway, resting: FakeDeadLetters, order: dict[str, object]
) -> None:
    answer = gateway.client.post(PATH + ":redrive", json=order)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_object")
    assert resting.marked == set()


def test_a_kafka_that_is_away_is_503_and_an_overtaken_redrive_409(
    gateway: RunningGateway, resting: FakeDeadLetters
) -> None:
    resting.error = KafkaUnavailableError("Kafka is away")
    assert gateway.client.get(PATH).status_code == 503
    assert gateway.client.post(PATH + ":redrive", json={}).status_code == 503
    resting.error = OvertakenError("another")
    answer = gateway.client.post(PATH + ":redrive", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "redrive_overtaken")


def test_keys_see_their_tenants_streams_and_only_administrators_send_again(
    resting: FakeDeadLetters,
) -> None:
    def key(name: str, tenant: str, *scopes: Scope) -> tuple[ApiKey, dict[str, str]]:
        text = new_text(kind="secret", key_id=name, entropy=bytes(ENTROPY_BYTES))
        made = ApiKey(
            id=name,
            secrets=(secret_from(text, signs=False),),
            tenant=tenant,
            scopes=frozenset(scopes),
        )
        return made, {"authorization": f"Bearer {text}"}

    writer, as_writer = key("writer", "shop", "write")
    reader, as_reader = key("reader", "shop", "read")
    admin, as_admin = key("admin", "shop", "admin")
    other, as_other = key("other", "bank", "read", "write", "admin")
    configuration = Configuration(
        streams={"orders": Stream("orders", tenant="shop")},
        keys={one.id: one for one in (writer, reader, admin, other)},
    )
    publisher = FakePublisher([stream_topic("orders")])
    with running_gateway(
        publisher, FixedConfig(configuration), Settings(auth="keys"), dead_letters=resting
    ) as running:
        get, post = running.client.get, running.client.post
        payload = {"payload": "true"}
        assert get(PATH).status_code == 401
        assert get(PATH, headers=as_other).status_code == 404
        assert post(PATH + ":redrive", json={}, headers=as_other).status_code == 404
        assert get(PATH, headers=as_writer).status_code == 200
        assert get(PATH, headers=as_writer, params=payload).status_code == 403
        assert get(PATH, headers=as_reader, params=payload).status_code == 200
        assert post(PATH + ":redrive", json={}, headers=as_reader).status_code == 403
        assert post(PATH + ":redrive", json={}, headers=as_admin).json()["count"] == 25


def test_what_one_tenant_asks_leaves_room_for_others(resting: FakeDeadLetters) -> None:
    def key(tenant: str) -> tuple[ApiKey, dict[str, str]]:
        text = new_text(kind="secret", key_id=tenant, entropy=bytes(ENTROPY_BYTES))
        made = ApiKey(
            tenant,
            (secret_from(text, signs=False),),
            tenant=tenant,
            scopes=frozenset({"read", "admin"}),
        )
        return made, {"authorization": f"Bearer {text}"}

    (shop, as_shop), (bank, as_bank) = key("shop"), key("bank")
    configuration = Configuration(
        streams={
            "orders": Stream("orders", tenant="shop"),
            "others": Stream("others", tenant="bank"),
        },
        keys={"shop": shop, "bank": bank},
    )
    released = threading.Event()
    resting.holds = {"orders": released}
    with (
        running_gateway(
            FakePublisher([]),
            FixedConfig(configuration),
            Settings(auth="keys"),
            dead_letters=resting,
        ) as running,
        ThreadPoolExecutor(8) as pool,
    ):
        get, post = running.client.get, running.client.post
        try:
            slow = [pool.submit(get, PATH, headers=as_shop) for _ in range(4)]
            slow += [
                pool.submit(post, f"{PATH}:redrive", json={}, headers=as_shop) for _ in range(4)
            ]
            wait_until(lambda: resting.held_count == 2, what="a list and a redrive have begun")
            theirs = "/v1/streams/others/dead-letters"
            assert len(get(theirs, headers=as_bank).json()["dead_letters"]) == 1
            assert post(f"{theirs}:redrive", json={}, headers=as_bank).json()["count"] == 1
            assert resting.held_count == 2, "one search for each tenant"
        finally:
            released.set()
        assert {answer.result().status_code for answer in slow} == {200}


def test_the_newest_come_with_how_many_match(
    gateway: RunningGateway, resting: FakeDeadLetters
) -> None:
    order = {"reason": "status_401", "limit": 2}
    assert gateway.client.post(PATH + ":redrive", json=order).json()["count"] == 2
    query = {"reason": "status_401", "limit": "3"}
    page = gateway.client.get("/v1/dead-letters:newest", params=query).json()
    assert [each["place"] for each in page.pop("dead_letters")] == ["0:23", "0:21", "0:19"]
    assert page == {
        "matching": 12,
        "redrivable": 10,
        "redrivable_streams": ["orders"],
        "next": "19:0:19",
        "is_complete": True,
    }
    older = gateway.client.get(
        "/v1/dead-letters:newest", params={**query, "limit": "20", "before": page["next"]}
    ).json()
    places = [each["place"] for each in older["dead_letters"]]
    assert places == [f"0:{n}" for n in range(17, 0, -2)]
    # Each page counts the matches of all pages.
    assert (older["matching"], older["next"]) == (12, None)
    wrong = gateway.client.get("/v1/dead-letters:newest", params={"before": "yesterday"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_query")
    resting.is_whole = False
    assert gateway.client.get("/v1/dead-letters:newest").json()["is_complete"] is False
    named = {"stream": ["orders", "nobodys"]}
    assert gateway.client.get("/v1/dead-letters:newest", params=named).status_code == 404


def test_all_are_listed_and_those_of_no_stream_to_the_operator_alone(
    gateway: RunningGateway, resting: FakeDeadLetters
) -> None:
    listed = gateway.client.get("/v1/dead-letters", params={"limit": "1000"}).json()
    streams = [letter["stream"] for letter in listed["dead_letters"]]
    assert (streams.count("orders"), streams.count("others"), len(streams)) == (25, 1, 26)
    named = gateway.client.get("/v1/dead-letters", params={"stream": "others"}).json()
    assert [letter["place"] for letter in named["dead_letters"]] == ["0:99"]
    assert gateway.client.get("/v1/streams/others/dead-letters").status_code == 404
    assert gateway.client.get("/v1/dead-letters:newest").json()["matching"] == 25
    text = new_text(kind="secret", key_id="reader", entropy=bytes(ENTROPY_BYTES))
    reader = ApiKey("reader", (secret_from(text, signs=False),), scopes=frozenset({"read"}))
    configuration = Configuration(streams={"orders": Stream("orders")}, keys={reader.id: reader})
    locked = FixedConfig(configuration), Settings(auth="keys")
    with running_gateway(FakePublisher([]), *locked, dead_letters=resting) as running:
        as_reader = {"authorization": f"Bearer {text}"}
        query = {"limit": "1000"}
        listed = running.client.get("/v1/dead-letters", params=query, headers=as_reader).json()
        assert {letter["stream"] for letter in listed["dead_letters"]} == {"orders"}


def test_an_export_is_ndjson_page_by_page(gateway: RunningGateway) -> None:
    headers = {"accept": "application/x-ndjson"}
    answer = gateway.client.get(PATH, params={"limit": "20"}, headers=headers)
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = answer.text.splitlines()
    after = answer.headers["hifi-next"]
    answer = gateway.client.get(PATH, params={"after": after}, headers=headers)
    assert "hifi-next" not in answer.headers
    lines += answer.text.splitlines()
    assert [json.loads(line)["data"]["id"] for line in lines] == [f"e{n}" for n in range(25)]


def test_a_redrive_goes_on_under_its_id(gateway: RunningGateway) -> None:
    first = gateway.client.post(PATH + ":redrive", json={"limit": 5}).json()
    more = {"redrive_id": first["redrive_id"]}
    assert gateway.client.post(PATH + ":redrive", json=more).json() == {
        "redrive_id": first["redrive_id"],
        "count": 20,
        "already": 5,
        "malformed": 0,
        "is_complete": True,
    }
    odd = gateway.client.post(PATH + ":redrive", json={"redrive_id": "mine"})
    assert (odd.status_code, odd.json()["code"]) == (400, "bad_object")
