"""Quotas over real HTTP: the charges, and the callers who see the remaining quota."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import ApiKey, Tenant, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

TENANTS = ("acme", "other")
PATH = "/v1/streams/acme/events"
TEXTS = {
    name: new_text(kind="secret", key_id=name, entropy=name.ljust(20).encode()) for name in TENANTS
}


@pytest.fixture
def config() -> FixedConfig:
    streams = {name: Stream(name, tenant=name) for name in TENANTS}
    keys = {
        name: ApiKey(name, (secret_from(text, signs=False),), tenant=name)
        for name, text in TEXTS.items()
    }
    return FixedConfig(Configuration(streams=streams, keys=keys))


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    publisher = FakePublisher([stream_topic(name) for name in TENANTS])
    with running_gateway(publisher, config, Settings(auth="keys")) as running:
        yield running


def bearer(tenant: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TEXTS[tenant]}"}


def post(
    gateway: RunningGateway,
    body: bytes = b"[{}]",
    *,
    path: str = PATH,
    tenant: str = "acme",
    **headers: str,
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"content-type": "application/json"} | bearer(tenant) | named
    return gateway.client.post(path, content=body, headers=sent)


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def limit(config: FixedConfig, **rates: Any) -> None:
    quota = Tenant("acme", **rates)
    config.configuration = replace(config.configuration, tenants={"acme": quota})


def test_a_quota_that_is_used_up_is_429_and_the_headers_say_when(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    limit(config, events_per_s=2)
    first = post(gateway, b"[{},{},{},{},{}]")
    assert first.status_code == 200
    assert first.headers["ratelimit-policy"] == '"tenant-events";q=2;w=1'
    assert first.headers["ratelimit"].startswith('"tenant-events";r=0;t=')
    refused = post(gateway)
    assert code(refused) == (429, "quota_events")
    assert refused.json()["type"].endswith("#quota-exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    other = post(gateway, path="/v1/streams/other/events", tenant="other")
    assert other.status_code == 200, "other tenants must not be affected"
    shown = gateway.client.get("/v1/limits", headers=bearer("acme")).json()
    assert shown["quotas"]["events_per_s"] == 2


BIG = b"[" + b" " * 99_998 + b"]"
REFUSED: list[tuple[int, bytes, dict[str, str]]] = [
    (400, b'[{"a":1},' + b" " * 100_000, {}),
    (400, b"x" * 100_000, {"content_encoding": "gzip"}),
    (400, gzip.compress(BIG)[:-4], {"content_encoding": "gzip"}),
    (413, b"[" + b"{}," * 40_000 + b"{}]", {}),
    (413, b" " * 5_000_001, {}),
    (422, b"[" + b"7," * 4_000 + b" " * 90_000 + b"7]", {}),
    (422, b'[{"a":1},7]' + b" " * 100_000, {"prefer": "handling=strict"}),
]


@pytest.mark.parametrize(("status", "body", "headers"), REFUSED)
def test_what_is_read_is_charged_also_when_it_is_refused(
    gateway: RunningGateway, config: FixedConfig, status: int, body: bytes, headers: dict[str, str]
) -> None:
    limit(config, bytes_per_s=9_000)
    refused = post(gateway, body, **headers)
    assert refused.status_code == status
    assert refused.headers["ratelimit"].startswith('"tenant-bytes";r=0;t=')
    assert code(post(gateway)) == (429, "quota_bytes")


def test_rejected_events_are_charged_as_events(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    limit(config, events_per_s=2)
    assert post(gateway, b"[1,2,3,4,5]").status_code == 422
    assert code(post(gateway)) == (429, "quota_events")


def test_a_repeated_request_costs_its_bytes_and_no_events(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    limit(config, events_per_s=6, bytes_per_s=1e6)
    for _ in range(3):
        answer = post(gateway, b"[{},{},{},{},{}]", idempotency_key="one")
        assert answer.status_code == 200
        # The header is this answer's own, not a copy from the first one.
        assert len(answer.headers.get_list("ratelimit")) == 1


def test_each_answer_to_somebody_known_says_what_is_left(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    limit(config, requests_per_s=1_000)
    answers = [
        (200, post(gateway)),
        (404, post(gateway, path="/v1/streams/unknown/events")),
        (415, post(gateway, content_type="image/png")),
        (415, post(gateway, content_encoding="lzw")),
        (400, post(gateway, path=f"{PATH}?dry_run=maybe")),
        (400, post(gateway, b"{")),
    ]
    for status, given in answers:
        assert given.status_code == status
        assert given.headers.get_list("ratelimit-policy") == ['"tenant-requests";q=1000;w=1']
    limit(config, requests_per_s=1)
    post(gateway)
    assert len(post(gateway).headers.get_list("ratelimit")) == 1
    assert "ratelimit" not in post(gateway, authorization="Bearer x").headers
