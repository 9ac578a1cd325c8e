"""A destination refuses impossible settings by name, and survives the config topic unchanged."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.config.configuration import Configuration
from shared.config.credentials import (
    Basic,
    Bearer,
    ClientCertificate,
    OAuth2,
    Proxy,
    change_secrets,
    secrets_of,
)
from shared.config.destination import BodyFormat, Compression, Destination, Latency
from shared.config.model import ConfigError, config_error
from shared.config.selection import Condition
from shared.event.topics import NAME_PATTERN

SHOP = Destination("orders", "shop", "https://shop.example/in")
SEALED = "sealed:v1:gAAAAA"
PEM = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
PROXY = "http://proxy.example:3128"
OAUTH = {"kind": "oauth2", "token_url": "https://a/t", "client_id": "me", "client_secret": SEALED}

names = st.from_regex(NAME_PATTERN, fullmatch=True)
sealed = st.text("abcdef", max_size=9).map(lambda text: SEALED + text)
headers = st.sampled_from([{}, {"x-a": "1"}, {"X-Api-Version": "2 3", "user-agent": "us"}])
auths = st.one_of(
    st.none(),
    st.builds(Basic, username=st.sampled_from(["", "me"]), password=sealed),
    st.builds(Bearer, token=sealed),
    st.builds(OAuth2, token_url=st.just("https://a/t"), client_id=names, client_secret=sealed),
)
destinations = st.builds(
    Destination,
    stream=names,
    name=names,
    url=st.sampled_from(["https://a", "https://[::1]:8443/x?y=z", "https://b\u00fccher.example/"]),
    body_format=st.sampled_from(get_args(BodyFormat)),
    batch_count_max=st.integers(1, 10_000),
    batch_bytes_max=st.integers(1, 64 * 1_048_576),
    linger_s=st.floats(0, 60),
    parallel_max=st.integers(1, 256),
    rate_per_s=st.none() | st.floats(0.001, 1e9),
    timeout_s=st.floats(0.001, 300),
    connect_timeout_s=st.floats(0.001, 300),
    compression=st.sampled_from(get_args(Compression)),
    headers=headers,
    secret_headers=st.dictionaries(st.sampled_from(["x-key", "x-token"]), sealed),
    auth=auths,
    client_certificate=st.none() | st.builds(ClientCertificate, st.just(PEM), sealed),
    proxy=st.none() | st.builds(Proxy, st.just(PROXY), names, st.none() | sealed),
    http2=st.booleans(),
    signing_secrets=st.lists(sealed, max_size=2).map(tuple),
    order=st.sampled_from(["none", "key"]),
    retry_on=st.frozensets(st.integers(400, 499), max_size=4),
    latency=st.sampled_from(get_args(Latency)),
    start=st.sampled_from(["earliest", "latest", 0, 1_700_000_000_000]),
    filter=st.sampled_from([(), (Condition("/a", "one_of", (1, None)),)]),
    fields=st.sampled_from([(), ("/a", "/b/c")]),
    is_paused=st.booleans(),
    hold_on_rejects=st.booleans(),
    disable_after_s=st.floats(1, 2_592_000),
    is_disabled=st.booleans(),
    resumed_at_ms=st.integers(0, 10**15),
)


@given(destinations)
def test_a_destination_is_the_same_after_the_config_topic(destination: Destination) -> None:
    read = Configuration().apply(destination.config_key, destination.to_json())
    assert read.destinations == {destination.id: destination}


def test_a_destination_of_the_first_release_still_opens() -> None:
    """Records in a config topic live as long as the topic does."""
    written = (
        b'{"batch_bytes_max": 1048576, "batch_count_max": 500, "body_format": "json",'
        b' "name": "shop", "parallel_max": 4, "retry_on": [408, 425], "stream": "orders",'
        b' "timeout_s": 15.0, "url": "https://shop.example/in"}'
    )
    read = Configuration().apply(SHOP.config_key, written)
    assert read.destinations == {SHOP.id: replace(SHOP, retry_on=frozenset({408, 425}))}


def test_a_destination_is_written_like_this() -> None:
    written = replace(SHOP, auth=Basic("me", SEALED), filter=(Condition("/a", "exists", False),))
    assert json.loads(written.to_json()) == {
        "stream": "orders",
        "name": "shop",
        "url": "https://shop.example/in",
        "body_format": "json",
        "batch_count_max": 500,
        "batch_bytes_max": 1_048_576,
        "linger_s": 0.0,
        "parallel_max": 4,
        "shards": 1,
        "rate_per_s": None,
        "timeout_s": 15.0,
        "connect_timeout_s": 5.0,
        "compression": "none",
        "headers": {},
        "secret_headers": {},
        "auth": {"kind": "basic", "username": "me", "password": SEALED},
        "client_certificate": None,
        "proxy": None,
        "http2": False,
        "signing_secrets": [],
        "order": "none",
        "retry_on": [],
        "latency": "micro-batch",
        "start": "earliest",
        "filter": [{"pointer": "/a", "exists": False}],
        "fields": [],
        "is_paused": False,
        "hold_on_rejects": False,
        "disable_after_s": 432_000.0,
        "is_disabled": False,
        "resumed_at_ms": 0,
    }


def test_each_kafka_partition_is_in_a_shard_and_the_first_is_leased_by_the_destinations_name() -> (
    None
):
    to = replace(SHOP, shards=3)
    assert to.shard_names == ["orders/shop", "orders/shop#1", "orders/shop#2"]
    assert [to.shard_of(partition) for partition in range(5)] == [
        *to.shard_names,
        "orders/shop",
        "orders/shop#1",
    ]
    assert {SHOP.shard_of(partition) for partition in range(5)} == {SHOP.id}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"shards": 0}, "shards: 0 should be greater than or equal to 1"),
    ({"shards": 33}, "shards: 33 should be less than or equal to 32"),
    ({"stream": "Orders"}, "stream: 'Orders' is not a name"),
    ({"stream": 5}, "stream: 5 should be a valid string"),
    ({"name": ""}, "name: '' is not a name"),
    ({"url": ""}, "url: "),
    ({"url": 5}, "url: "),
    ({"url": "shop.example/in"}, "url: "),
    ({"url": "ftp://shop.example"}, "url: "),
    ({"url": "https://"}, "url: "),
    ({"url": "https://:443/in"}, "url: "),
    ({"url": "https://[::1"}, "url: "),
    ({"url": "https://shop.example:99999"}, "url: "),
    ({"url": "https://shop.example:0"}, "url: "),
    ({"url": "https://shop.example:http"}, "url: "),
    ({"url": "https://shop.example/a b"}, "url: "),
    ({"url": "https://shop.example/\n"}, "url: "),
    ({"url": "https://sh\u00a0op.example/"}, "url: "),
    (
        {"body_format": "xml"},
        "body_format: 'xml' should be 'json', 'cloudevents', 'ndjson' or 'single'",
    ),
    ({"body_format": []}, "body_format: it should be 'json', 'cloudevents', 'ndjson' or 'single'"),
    ({"batch_count_max": 0}, "batch_count_max: 0 should be greater than or equal to 1"),
    ({"batch_count_max": 10_001}, "batch_count_max: 10001 should be less than or equal to 10000"),
    ({"batch_count_max": 2.5}, "batch_count_max: 2.5 should be a valid integer"),
    ({"batch_bytes_max": 0}, "batch_bytes_max"),
    ({"batch_bytes_max": 64 * 1_048_576 + 1}, "batch_bytes_max"),
    ({"linger_s": -1}, "linger_s"),
    ({"linger_s": 61}, "linger_s"),
    ({"parallel_max": 0}, "parallel_max"),
    ({"parallel_max": 257}, "parallel_max"),
    ({"rate_per_s": 0}, "rate_per_s"),
    ({"rate_per_s": "5"}, "rate_per_s: '5' should be a valid number"),
    ({"timeout_s": 0.0}, "timeout_s"),
    ({"timeout_s": 300.1}, "timeout_s"),
    ({"timeout_s": float("nan")}, "timeout_s"),
    ({"timeout_s": True}, "timeout_s: True should be a valid number"),
    ({"connect_timeout_s": 0}, "connect_timeout_s"),
    ({"compression": "br"}, "compression: 'br' should be 'none', 'gzip' or 'zstd'"),
    ({"order": "some"}, "order"),
    ({"latency": "fast"}, "latency"),
    ({"start": "now"}, "start"),
    ({"start": -1}, "start"),
    ({"start": 1.5}, "start"),
    ({"retry_on": frozenset({399})}, "retry_on: only statuses from 400 to 499"),
    ({"retry_on": frozenset({500})}, "retry_on: only statuses from 400 to 499"),
    ({"headers": None}, "headers: it should be a valid dictionary"),
    ({"headers": {f"x-{n}": "1" for n in range(33)}}, "headers: it should have at most 32 items"),
    ({"headers": {"a b": "1"}}, "headers.a b: 'a b' is not a header's name"),
    ({"headers": {5: "1"}}, "headers.5: 5 should be a valid string"),
    ({"headers": {"Host": "a"}}, "headers.Host: this header is set by Hifi"),
    ({"headers": {"webhook-id": "a"}}, "headers.webhook-id: this header is set by Hifi"),
    ({"headers": {"x": "a\r\nhost: b"}}, "headers.x: a header's value is printable ASCII"),
    ({"headers": {"x": " a"}}, "headers.x: a header's value"),
    ({"headers": {"x": "\u00fc"}}, "headers.x: a header's value"),
    ({"headers": {"x": ""}}, "headers.x: '' should have at least 1 character"),
    ({"headers": {"x": 1}}, "headers.x: 1 should be a valid string"),
    ({"headers": {"Authorization": "Bearer x"}}, "headers.Authorization: put a secret into"),
    ({"headers": {"X-a": "1", "x-A": "1"}}, "headers: a header is set twice"),
    ({"headers": {"x-a": "1"}, "secret_headers": {"X-A": SEALED}}, "headers: a header is set"),
    (
        {"auth": Bearer(SEALED), "secret_headers": {"Authorization": SEALED}},
        "headers: a header is set twice",
    ),
    ({"secret_headers": {"x": "plain"}}, "secret_headers.x: a secret must be sealed"),
    ({"signing_secrets": ("whsec_",)}, "signing_secrets.0: a secret must be sealed"),
    ({"signing_secrets": (SEALED,) * 3}, "signing_secrets: it should have at most 2 items"),
    ({"signing_secrets": [SEALED]}, "signing_secrets: it should be a valid tuple"),
    ({"auth": "basic"}, "auth: it should be"),
    ({"filter": []}, "filter: it should be a valid tuple"),
    ({"filter": ({"pointer": "/a"},)}, "filter: a condition has a pointer and one of"),
    ({"fields": ("a",)}, "fields.0: 'a' is not a pointer"),
    ({"fields": ("/a",) * 101}, "fields: it should have at most 100 items"),
    (
        {"filter": (Condition("/a", "exists", True),) * 33},
        "filter: it should have at most 32 items",
    ),
    ({"fields": ("",)}, "fields.0: '' is not a pointer to a member"),
    ({"is_paused": 1}, "is_paused: 1 should be a valid boolean"),
    ({"is_disabled": None}, "is_disabled"),
    ({"hold_on_rejects": "no"}, "hold_on_rejects"),
    ({"disable_after_s": 0}, "disable_after_s"),
    ({"disable_after_s": 31 * 86_400}, "disable_after_s"),
]


@pytest.mark.parametrize(("changed", "text"), REFUSED, ids=str)
def test_a_setting_that_cannot_work_is_refused_by_name(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        replace(SHOP, **changed)
    assert str(config_error(caught.value.errors()[0])).startswith(text)
    # A secret that was not sealed must not show up in an error.
    assert "plain" not in str(caught.value)
    assert "plain" not in str(config_error(caught.value.errors()[0]))


WRONG_JSON: list[tuple[dict[str, Any], str]] = [
    ({"url": None}, "url"),
    ({"retry_on": 408}, "retry_on: 408 should be a valid array"),
    ({"retry_on": [[408]]}, "retry_on: only statuses"),
    ({"retry_on": ["408"]}, "retry_on: only statuses"),
    ({"signing_secrets": "whsec_"}, "signing_secrets: it should be a valid array"),
    ({"fields": {}}, "fields: it should be a valid array"),
    ({"filter": [5]}, "filter: a condition has a pointer and one of"),
    ({"auth": "basic"}, "auth: it should be an object"),
    ({"auth": {"kind": "magic"}}, "auth: the kind 'magic' is not one of 'basic', 'bearer', "),
    ({"auth": {"kind": []}}, "auth: the kind '[]' is not one of"),
    ({"auth": {"kind": "bearer"}}, "auth.token: it is missing"),
    ({"auth": {"kind": "bearer", "token": "plain"}}, "auth.token: a secret must be sealed"),
    ({"auth": {"kind": "basic", "username": "a:b", "password": SEALED}}, "auth.username"),
    ({"auth": {"kind": "basic", "username": "a\nb", "password": SEALED}}, "auth.username"),
    ({"auth": {"kind": "basic", "username": None, "password": SEALED}}, "auth.username"),
    ({"auth": {**OAUTH, "token_url": "nowhere"}}, "auth.token_url"),
    ({"auth": {**OAUTH, "client_id": ""}}, "auth.client_id"),
    ({"auth": {**OAUTH, "scope": 5}}, "auth.scope"),
    ({"client_certificate": "PEM"}, "client_certificate: it should be an object"),
    ({"client_certificate": {}}, "client_certificate.certificate_pem: it is missing"),
    (
        {"client_certificate": {"certificate_pem": "x", "key_pem": SEALED}},
        "client_certificate.certificate_pem: it holds no certificate",
    ),
    (
        {"client_certificate": {"certificate_pem": PEM, "key_pem": SEALED + "x" * 131_072}},
        "client_certificate.key_pem: it is not a text of",
    ),
]


@pytest.mark.parametrize(("given_fields", "text"), WRONG_JSON, ids=str)
def test_what_json_can_get_wrong_is_refused_by_name(
    given_fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Destination.of({**json.loads(SHOP.to_json()), **given_fields})
    assert str(caught.value).startswith(text)


def test_what_a_newer_hifi_has_written_is_ignored_and_kept() -> None:
    bearer = {"kind": "bearer", "token": SEALED, "audience": "a"}
    written = {**SHOP.to_fields(), "colour": "red", "auth": bearer, "others": 1}
    read = Destination.of(written)
    assert replace(read, others={}) == replace(SHOP, auth=Bearer(SEALED))
    assert json.loads(read.to_json()) == written
    paused = replace(read, is_paused=True)
    assert json.loads(paused.to_json()) == written | {"is_paused": True}
    unsigned = {name: value for name, value in written.items() if name != "auth"}
    assert replace(read, auth=None).to_fields() == unsigned | {"auth": None}


@pytest.mark.parametrize("missing", ["stream", "name", "url"])
def test_stream_name_and_url_must_be_there(missing: str) -> None:
    rest = {
        k: v for k, v in {"stream": "a", "name": "b", "url": "http://c"}.items() if k != missing
    }
    with pytest.raises(ConfigError, match=f"{missing}: it is missing"):
        Destination.of(rest)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080",
        "https://user:pass@shop.example:8443/in?a=b",
        "http://[::1]:9/",
        "HTTPS://SHOP.EXAMPLE",
    ],
)
def test_an_address_that_can_work_is_taken(url: str) -> None:
    assert replace(SHOP, url=url).url == url


@given(destinations)
def test_every_secret_is_found_and_nothing_else(destination: Destination) -> None:
    fields = destination.to_fields()
    assert all(value.startswith(SEALED) for _, value in secrets_of(fields))
    hidden = change_secrets(fields, lambda *_: "hidden")
    assert SEALED not in json.dumps(hidden)
    assert json.dumps(hidden).count('"hidden"') == len(list(secrets_of(fields)))
    assert change_secrets(fields, lambda _, value: value) == fields


def test_a_secret_is_found_by_its_path() -> None:
    fields = {
        "auth": {"kind": "basic", "username": "me", "password": "p"},
        "client_certificate": None,
        "proxy": {"url": PROXY, "username": "me", "password": "q"},
        "secret_headers": {"x-key": "k"},
        "signing_secrets": ["a", "b"],
        "url": "https://u",
    }
    assert dict(secrets_of(fields)) == {
        "auth.password": "p",
        "proxy.password": "q",
        "secret_headers.x-key": "k",
        "signing_secrets.0": "a",
        "signing_secrets.1": "b",
    }
    assert list(secrets_of({})) == []


@pytest.mark.parametrize(
    ("before", "after", "begins_anew"),
    [
        ({}, {"url": "https://other.example/in"}, True),
        ({}, {"headers": {"x-team": "a"}}, True),
        ({}, {"proxy": Proxy(PROXY)}, True),
        ({}, {"http2": True}, True),
        ({"is_paused": True}, {}, True),
        ({"is_disabled": True}, {}, True),
        ({"is_paused": True}, {"is_disabled": True}, False),
        ({}, {"is_paused": True}, False),
        ({}, {"parallel_max": 9}, False),
    ],
)
def test_what_is_reached_otherwise_or_let_go_begins_anew(
    before: dict[str, Any],
    after: dict[str, Any],
    begins_anew: bool,  # noqa: FBT001 - a row of the table
) -> None:
    first = Destination(**{"stream": "s", "name": "d", "url": "https://d.example/", **before})
    then = Destination(**{"stream": "s", "name": "d", "url": "https://d.example/", **after})
    assert then.begins_anew(first) is begins_anew


@given(destinations)
def test_a_resumed_destination_goes_on_and_is_else_the_same(destination: Destination) -> None:
    resumed = destination.resumed(at_ms=1_700_000_000_000)
    assert (resumed.is_paused, resumed.is_disabled) == (False, False)
    assert resumed.resumed_at_ms == 1_700_000_000_000
    again = replace(
        resumed,
        is_paused=destination.is_paused,
        is_disabled=destination.is_disabled,
        resumed_at_ms=destination.resumed_at_ms,
    )
    assert again == destination


def test_the_order_of_a_stream_is_not_to_be_had_in_real_time() -> None:
    in_line = replace(SHOP, order="stream")
    assert in_line.requests_at_once_max == 1
    assert Destination.of(in_line.to_fields()) == in_line
    with pytest.raises(ConfigError) as caught:
        Destination.of({**in_line.to_fields(), "latency": "realtime"})
    assert caught.value.setting == "latency"
