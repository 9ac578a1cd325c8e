"""Config objects refuse impossible settings, and the fold of the config topic never breaks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.configuration import (
    REMOVED_KEPT_MS,
    Configuration,
    RemovedDestination,
    RemovedStream,
    Stream,
)
from shared.config.destination import Destination
from shared.config.model import ConfigError
from shared.config.pipeline import Pipeline
from shared.event.topics import NAME_PATTERN

ORDERS = Stream("orders")
SHOP = Destination("orders", "shop", "https://shop.example/in")

names = st.from_regex(NAME_PATTERN, fullmatch=True)


@given(names, st.integers(1, 1000))
def test_a_stream_is_the_same_after_the_config_topic(name: str, partition_count: int) -> None:
    stream = Stream(name, partition_count)
    read = Configuration().apply(stream.config_key, stream.to_json())
    assert read.streams == {name: stream}


def test_of_one_key_the_last_value_counts() -> None:
    slower = replace(SHOP, timeout_s=30.0)
    read = Configuration()
    for each in (SHOP, slower):
        read = read.apply(each.config_key, each.to_json())
    assert read.destinations == {"orders/shop": slower}


def test_a_stream_says_where_its_key_is_and_what_its_events_are() -> None:
    stream = Stream("orders", tenant="acme", key_pointer="/a~1b/c", json_schema='{"type":"object"}')
    assert Configuration().apply(stream.config_key, stream.to_json()).streams == {"orders": stream}


@pytest.mark.parametrize("empty", [None, b""])
def test_an_empty_value_removes_the_object_and_no_other(empty: bytes | None) -> None:
    full = Configuration({"orders": ORDERS, "hits": Stream("hits")}, {SHOP.id: SHOP})
    assert set(full.apply(b"stream:orders", empty).streams) == {"hits"}
    assert full.apply(SHOP.config_key, empty).destinations == {}
    assert full.apply(b"stream:unheard-of", empty) == full


def test_what_was_removed_is_no_longer_there_but_still_somebodys() -> None:
    full = Configuration({"orders": ORDERS}, {SHOP.id: SHOP})
    stream = RemovedStream("orders", "default", 4, 17)
    destination = RemovedDestination("orders", "shop", "default", 17)
    for gone in (stream, destination):
        full = full.apply(gone.config_key, gone.to_json())
    assert full == Configuration(
        removed_streams={"orders": stream}, removed_destinations={destination.id: destination}
    )
    assert full.object(ORDERS.config_key) is None
    # Compaction keeps the last record of a key, which is this one.
    assert Configuration().apply(stream.config_key, stream.to_json()).removed_streams
    # The tenant's next stream of that name inherits them; another tenant's does not.
    assert list(full.removed_from(ORDERS)) == list(full.removed_from(stream)) == [destination]
    assert list(full.removed_from(replace(ORDERS, tenant="bravo"))) == []
    assert list(full.removed_from(Stream("hits"))) == []
    assert full.removed_now == [destination]
    assert full.past_streams == {"orders"}
    assert replace(full, streams={"hits": Stream("hits")}).past_streams == {"orders", "hits"}
    for again in (ORDERS, SHOP):
        full = full.apply(again.config_key, again.to_json())
    assert full == Configuration({"orders": ORDERS}, {SHOP.id: SHOP})


def test_a_removed_destination_is_known_as_long_as_its_receipts_are() -> None:
    gone = RemovedDestination("orders", "shop", "default", 17)
    full = Configuration().apply(gone.config_key, gone.to_json())
    assert list(full.outlived(now_ms=17 + REMOVED_KEPT_MS)) == []
    assert list(full.outlived(now_ms=18 + REMOVED_KEPT_MS)) == [gone.config_key]


def test_one_that_began_later_than_its_stream_is_known_as_such_also_once_it_is_removed() -> None:
    late = replace(SHOP, start="latest")
    full = Configuration({"orders": ORDERS}, {SHOP.id: SHOP})
    assert not full.starts_late(SHOP.id)
    assert not full.starts_late("nobody/knows")
    full = full.apply(late.config_key, late.to_json())
    assert full.starts_late(late.id)
    gone = RemovedDestination("orders", "shop", "default", 17, starts_late=True)
    assert full.apply(gone.config_key, gone.to_json()).starts_late(late.id)


@pytest.mark.parametrize("key", [b"", b"colour:1", b"stream", b"\xff\xfe"])
def test_a_key_of_an_unknown_kind_changes_nothing(key: bytes) -> None:
    full = Configuration({"orders": ORDERS})
    assert full.apply(key, None if key == b"stream" else b"{}") == full


def test_a_configuration_knows_the_destinations_of_a_stream() -> None:
    other = Destination("hits", "shop", "https://shop.example/hits")
    full = Configuration({}, {SHOP.id: SHOP, other.id: other})
    assert list(full.destinations_of("orders")) == [SHOP]
    pipeline = Pipeline.of(
        {"name": "p", "from": {"stream": "orders"}, "to": [{"stream": "hits"}, {"dead": True}]}
    )
    full = replace(full, pipelines={"p": pipeline})
    assert full.readers_of("orders") == [SHOP.id, "orders/pipeline:p"]
    assert full.readers_of("hits") == [other.id]
    assert full.derived_streams == {"hits"}
    assert list(full.destinations_of("nothing")) == []


def test_a_configuration_finds_an_object_by_the_key_of_its_record() -> None:
    full = Configuration({"orders": ORDERS}, {SHOP.id: SHOP})
    assert full.object(ORDERS.config_key) == ORDERS
    assert full.object(SHOP.config_key) == SHOP
    assert full.object(b"tenant:acme") is None


BROKEN_VALUES = [
    b"{",
    b"\xff",
    b"null",
    b"[]",
    b'"orders"',
    b"{}",
    b"[" * 100_000,
    b'{"name": 5}',
    b'{"name": "other"}',
    b'{"name": "orders", "partition_count": "4"}',
    b'{"name": "orders", "partition_count": 4.0}',
    b'{"name": "orders", "partition_count": true}',
    b'{"name": "orders", "partition_count": 0}',
    b'{"name": "orders", "partition_count": 1001}',
    b'{"name": "orders", "tenant": "No"}',
    b'{"name": "orders", "key_pointer": "user"}',
    b'{"name": "orders", "key_pointer": 5}',
    b'{"name": "orders", "json_schema": {}}',
    b'{"name": "orders", "json_schema": "{"}',
    b'{"name": "orders", "json_schema": "5"}',
    b'{"name": "orders", "json_schema": "%s"}' % (b" " * 262_145),
]


@pytest.mark.parametrize("value", BROKEN_VALUES, ids=lambda value: repr(value[:40]))
def test_a_broken_value_is_a_config_error_and_nothing_else(value: bytes) -> None:
    with pytest.raises(ConfigError):
        Configuration().apply(b"stream:orders", value)


@pytest.mark.parametrize("retry_on", ["5", "null", "[[408]]", '["408"]', "[408.0]", "[429.5]"])
@pytest.mark.parametrize("url", ['"https://shop.example"', "5", "null"])
def test_a_broken_destination_is_a_config_error_and_nothing_else(retry_on: str, url: str) -> None:
    value = f'{{"stream": "orders", "name": "shop", "url": {url}, "retry_on": {retry_on}}}'
    with pytest.raises(ConfigError):
        Configuration().apply(SHOP.config_key, value.encode())


def test_an_object_under_another_ones_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="the value belongs to b'destination:orders/shop'"):
        Configuration().apply(b"destination:orders/shopp", SHOP.to_json())


@given(st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_no_record_can_break_the_fold(rest: bytes, value: bytes | None) -> None:
    for kind in (b"stream:", b"destination:", b""):
        try:
            Configuration().apply(kind + rest, value)
        except ConfigError as error:
            assert str(error)  # noqa: PT017 - any record, refused or not, is fine
