"""A name outlives the removed object: its owner keeps it and all events sent under it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import SCOPES, ApiKey, new_text, secret_from
from shared.config.configuration import Configuration
from shared.event.times import DAY_MS, rfc3339
from shared.runtime.clock import now_ms
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeDeadLetters,
    FixedConfig,
    RunningGateway,
    a_dead_letter,
    running_gateway,
)

STREAM = "/v1/streams/orders"
TO = f"{STREAM}/destinations/shop"
URL = {"url": "https://1.1.1.1/in"}
TEXTS = {
    name: new_text(kind="secret", key_id=name, entropy=bytes(20)) for name in ("acme", "bravo")
}
KEYS = {
    name: ApiKey(name, (secret_from(text, signs=False),), tenant=name, scopes=SCOPES)
    for name, text in TEXTS.items()
}


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(keys=KEYS))


@pytest.fixture
def letters() -> FakeDeadLetters:
    return FakeDeadLetters([a_dead_letter(1)])


@pytest.fixture
def gateway(config: FixedConfig, letters: FakeDeadLetters) -> Iterator[RunningGateway]:
    settings = Settings(auth="keys")
    with running_gateway(FakePublisher([]), config, settings, dead_letters=letters) as running:
        yield running


def ask(gateway: RunningGateway, who: str, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {TEXTS[who]}"}
    return gateway.client.request(method, path, headers=headers, **more)


def status(gateway: RunningGateway, who: str, method: str, path: str, **more: Any) -> int:
    return ask(gateway, who, method, path, **more).status_code


def days_later(config: FixedConfig, days: float) -> None:
    """Move the removal of the stream this many days into the past."""
    (gone,) = config.configuration.removed_streams.values()
    earlier = replace(gone, removed_at_ms=gone.removed_at_ms - round(days * DAY_MS))
    config.configuration = config.configuration.apply(gone.config_key, earlier.to_json())


def test_a_freed_name_is_nobody_elses_while_anything_is_left_under_it(
    gateway: RunningGateway, config: FixedConfig, letters: FakeDeadLetters
) -> None:
    assert status(gateway, "acme", "PUT", STREAM, json={"partition_count": 2}) == 201
    taken = ask(gateway, "bravo", "PUT", STREAM, json={})
    assert (taken.status_code, taken.json()["code"]) == (409, "stream_in_use")
    assert status(gateway, "acme", "DELETE", STREAM) == 204
    refused = ask(gateway, "bravo", "PUT", STREAM, json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "stream_in_use")
    (gone,) = config.configuration.removed_streams.values()
    assert refused.json()["free_at"] == rfc3339(gone.removed_at_ms + 48 * DAY_MS)
    assert refused.json()["free_at"] in refused.json()["detail"]
    assert "acme" not in refused.text
    for path in (STREAM, f"{STREAM}/destinations", f"{STREAM}/dead-letters?payload=true"):
        assert status(gateway, "bravo", "GET", path) == 404
    assert status(gateway, "bravo", "PUT", TO, json=URL) == 404

    days_later(config, 47.9)
    assert status(gateway, "bravo", "PUT", STREAM, json={}) == 409
    days_later(config, 0.2)
    # Kafka has deleted the dead letters meanwhile.
    letters.letters.clear()
    made = ask(gateway, "bravo", "PUT", STREAM, json={})
    # An existing topic cannot lose partitions.
    assert (made.status_code, made.json()["partition_count"]) == (201, 2)
    assert ask(gateway, "bravo", "GET", f"{STREAM}/dead-letters").json()["dead_letters"] == []
    assert status(gateway, "acme", "GET", f"{STREAM}/dead-letters") == 404
    assert status(gateway, "acme", "PUT", STREAM, json={}) == 409


def test_a_name_is_never_free_where_kafka_keeps_its_events_for_ever(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    gateway.store.reserved = None
    assert status(gateway, "acme", "PUT", STREAM, json={}) == 201
    assert status(gateway, "acme", "DELETE", STREAM) == 204
    days_later(config, 10_000)
    refused = ask(gateway, "bravo", "PUT", STREAM, json={})
    assert (refused.status_code, refused.json()["free_at"]) == (409, None)


def test_what_became_of_a_removed_streams_events_is_still_its_owners(
    gateway: RunningGateway, letters: FakeDeadLetters
) -> None:
    letters.letters.append(replace(a_dead_letter(2), stream="hits", event_id="e2"))
    for stream in ("orders", "hits"):
        assert status(gateway, "acme", "PUT", f"/v1/streams/{stream}", json={}) == 201
    assert status(gateway, "acme", "PUT", TO, json=URL) == 201
    for path in (TO, STREAM):
        assert status(gateway, "acme", "DELETE", path) == 204
    listed = ask(gateway, "acme", "GET", "/v1/streams").json()
    assert listed["streams"] == ["hits"]
    assert [gone["name"] for gone in listed["removed"]] == ["orders"]
    listed = ask(gateway, "acme", "GET", f"{STREAM}/destinations").json()
    assert listed["destinations"] == []
    assert [gone["name"] for gone in listed["removed"]] == ["shop"]
    found = ask(gateway, "acme", "GET", f"{STREAM}/dead-letters").json()["dead_letters"]
    assert [letter["id"] for letter in found] == ["e1"]
    # All dead letters can be read; only those with a destination can be sent again.
    newest = "/v1/dead-letters:newest"
    shown = ask(gateway, "acme", "GET", newest).json()
    assert (shown["matching"], shown["redrivable"]) == (2, 1)
    assert shown["redrivable_streams"] == ["hits"]
    shown = ask(gateway, "acme", "GET", f"{newest}?stream=orders").json()
    assert (shown["matching"], shown["redrivable"], shown["redrivable_streams"]) == (1, 0, [])
    assert status(gateway, "acme", "POST", f"{STREAM}/dead-letters:redrive", json={}) == 404
    for path in (f"{STREAM}/dead-letters", f"{newest}?stream=orders", f"{STREAM}/destinations"):
        assert status(gateway, "bravo", "GET", path) == 404
    assert ask(gateway, "bravo", "GET", "/v1/streams").json() == {"streams": [], "removed": []}


def test_who_makes_a_stream_again_goes_on_with_it(gateway: RunningGateway) -> None:
    settings = {"partition_count": 3, "key_pointer": "/id"}
    assert status(gateway, "acme", "PUT", STREAM, json=settings) == 201
    assert status(gateway, "acme", "DELETE", STREAM) == 204
    again = ask(gateway, "acme", "PUT", STREAM, json={})
    assert (again.status_code, again.json()["partition_count"]) == (201, 3)
    assert again.json()["key_pointer"] == ""
    found = ask(gateway, "acme", "GET", f"{STREAM}/dead-letters").json()["dead_letters"]
    assert [letter["id"] for letter in found] == ["e1"]


def test_who_makes_a_destination_again_goes_on_with_it_unstopped(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    before_ms = now_ms()
    assert status(gateway, "acme", "PUT", STREAM, json={}) == 201
    made = ask(gateway, "acme", "PUT", TO, json=URL)
    assert (made.status_code, made.json()["resumed_at_ms"]) == (201, 0)
    assert status(gateway, "acme", "DELETE", TO) == 204
    (gone,) = config.configuration.removed_destinations.values()
    # Address and secrets are not kept, as they are no longer needed.
    kept = {"stream", "name", "tenant", "removed_at_ms", "starts_late"}
    assert set(gone.to_fields()) == kept
    again = ask(gateway, "acme", "PUT", TO, json=made.json())
    assert again.status_code == 201
    # An earlier hold or disabling no longer applies.
    assert again.json()["resumed_at_ms"] >= before_ms
    assert config.configuration.removed_destinations == {}
