"""Requests in one piece bypass uvicorn, and their connections keep all promises."""

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

from gateway.ingest.whole_head import read_whole_head
from gateway.settings import Settings
from shared.config.access import ApiKey, Tenant, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FixedConfig,
    RunningGateway,
    config_with,
    running_gateway,
)

if TYPE_CHECKING:
    from gateway.http.door import DoorProtocol

TOPIC = stream_topic("orders")
HEAD = (
    "POST /v1/streams/orders/events HTTP/1.1\r\nHost: g\r\n{more}"
    "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)
ANSWER = re.compile(rb"HTTP/1.1 (\d+) .*?\r\ncontent-length: (\d+)(?:\r\n.*?)?\r\n\r\n", re.DOTALL)
# Generated ids, which differ for each request.
MADE = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}")
BODIES = (
    b'{"id":"a","time":"2026-11-23T10:00:00Z"}',
    b'[{"id":"a","partitionkey":"k"},{"id":7},{"x":1}]',
    b'[{"id":"a"},[],{"id":"' + b"y" * 300 + b'"},{"id":"b"}]',
    b'{"events":[{"id":"a"}]}',
    b'{"batch":[{"id":"a"}]}',
    b'{"id":"\\ud800"}',
    b"       ",
    b"[1]      ",
)
MORE_HEADERS = (
    "",
    "X-Request-Id: mine\r\nX-Partition-Key: u-1\r\n",
    "Prefer: return=minimal\r\n",
    "Prefer: handling=strict\r\nTraceparent: 00-" + "1" * 32 + "-" + "2" * 16 + "-01\r\n",
    "X-Forwarded-For: 1.1.1.1\r\n",
)
KEY = new_text(kind="secret", key_id="ours", entropy=bytes(20))


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def config() -> FixedConfig:
    return config_with("orders")


@pytest.fixture
def gateway(publisher: FakePublisher, config: FixedConfig) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config) as running:
        yield running


@pytest.fixture
def wire(gateway: RunningGateway) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connected:
        yield connected


def request(body: bytes, more: str = "") -> bytes:
    return HEAD.format(length=len(body), more=more).encode() + body


def answers(wire: socket.socket, count: int) -> list[int]:
    """Return the statuses of the next `count` answers."""
    data, statuses = b"", list[int]()
    while len(statuses) < count:
        data += wire.recv(65_536)
        while (found := ANSWER.search(data)) and len(data) >= found.end() + int(found[2]):
            statuses.append(int(found[1]))
            data = data[found.end() + int(found[2]) :]
    assert data == b""
    return statuses


def asked(wire: socket.socket, data: bytes) -> int:
    wire.sendall(data)
    return answers(wire, 1)[0]


def stored(publisher: FakePublisher) -> list[str]:
    return [event.id for event in publisher.stored(TOPIC)]


def connection_of(gateway: RunningGateway) -> "DoorProtocol":
    (one,) = gateway.connections(lambda one: one)
    return cast("DoorProtocol", one)


def is_at_work(gateway: RunningGateway) -> bool:
    """Return whether uvicorn is serving a request."""
    return any(gateway.connections(lambda one: one.cycle))


def test_a_request_in_one_piece_takes_the_door_and_one_in_two_pieces_does_not(
    gateway: RunningGateway, wire: socket.socket, publisher: FakePublisher
) -> None:
    assert asked(wire, request(b'{"id":"a"}')) == 200
    assert connection_of(gateway).cycle is None
    head, body = request(b'{"id":"b"}')[:-10], request(b'{"id":"b"}')[-10:]
    wire.sendall(head)
    assert asked(wire, body) == 200
    assert connection_of(gateway).cycle is not None
    assert asked(wire, request(b'{"id":"c"}')) == 200
    assert stored(publisher) == ["a", "b", "c"]


def test_each_length_of_body_is_read_as_it_is(
    wire: socket.socket, publisher: FakePublisher
) -> None:
    ids = ["x" * size for size in (1, 9, 80, 200, 3)]
    for one in ids:
        assert asked(wire, request(json.dumps({"id": one}).encode())) == 200
    assert sorted(stored(publisher)) == sorted(ids)


def test_what_is_sent_behind_a_request_under_way_is_answered_after_it_in_order(
    gateway: RunningGateway, wire: socket.socket, publisher: FakePublisher
) -> None:
    publisher.hold()
    wire.sendall(request(b'{"id":"a"}'))
    assert publisher.published.wait(10)
    wire.sendall(request(b'{"id":"b"}') + request(b"[]") + b"GET /none HTTP/1.1\r\nhost: g\r\n")
    connection = connection_of(gateway)
    wait_until(lambda: bool(connection._behind), what="the others have arrived")
    wire.sendall(b"\r\n")
    publisher.release()
    assert answers(wire, 4) == [200, 200, 200, 404]
    assert stored(publisher) == ["a", "b"]


def test_two_requests_in_one_piece_are_two(wire: socket.socket, publisher: FakePublisher) -> None:
    wire.sendall(request(b'{"id":"a"}') + request(b'{"id":"b"}'))
    assert answers(wire, 2) == [200, 200]
    assert stored(publisher) == ["a", "b"]


def test_who_has_said_all_still_gets_the_answer_and_then_the_end(
    wire: socket.socket, publisher: FakePublisher
) -> None:
    publisher.hold()
    wire.sendall(request(b'{"id":"a"}'))
    assert publisher.published.wait(10)
    wire.shutdown(socket.SHUT_WR)
    publisher.release()
    assert answers(wire, 1) == [200]
    assert wire.recv(1) == b""


def test_who_leaves_early_has_sent_the_event_all_the_same(
    gateway: RunningGateway, wire: socket.socket, publisher: FakePublisher
) -> None:
    publisher.hold()
    wire.sendall(request(b'{"id":"a"}'))
    assert publisher.published.wait(10)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    wire.close()
    wait_until(lambda: not gateway.server.server_state.connections, what="the connection is gone")
    publisher.release()
    wait_until(lambda: stored(publisher) == ["a"], what="the event is stored")
    assert gateway.client.get("/v1/limits").status_code == 200


def test_who_has_said_all_with_more_behind_is_answered_on_all_of_it(
    gateway: RunningGateway, wire: socket.socket, publisher: FakePublisher
) -> None:
    publisher.hold()
    wire.sendall(request(b'{"id":"a"}'))
    assert publisher.published.wait(10)
    wire.sendall(request(b'{"id":"b"}') + request(b'{"id":"c"}'))
    connection = connection_of(gateway)
    wait_until(lambda: bool(connection._behind), what="the others have arrived")
    wire.shutdown(socket.SHUT_WR)
    publisher.release()
    assert answers(wire, 3) == [200] * 3
    assert wire.recv(1) == b""


def test_a_head_that_stops_behind_such_a_request_is_not_waited_for(
    publisher: FakePublisher, config: FixedConfig
) -> None:
    settings = Settings(auth="off", head_deadline_s=1)
    with (
        running_gateway(publisher, config, settings) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as wire,
    ):
        assert asked(wire, request(b'{"id":"a"}')) == 200
        begun_s = time.monotonic()
        assert asked(wire, b"POST /v1/streams/orders/events HTTP/1.1\r\nHost: g\r\n") == 408
        assert 0.9 < time.monotonic() - begun_s < 9


def test_what_is_idle_behind_such_a_request_is_closed_and_not_sooner(
    publisher: FakePublisher, config: FixedConfig
) -> None:
    with (
        running_gateway(publisher, config, Settings(auth="off", keep_alive_s=2)) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as wire,
    ):
        for nth in range(3):
            assert asked(wire, request(b'{"id":"%d"}' % nth)) == 200
            time.sleep(0.8)
        # A connection with a slow request is not idle.
        publisher.hold()
        wire.sendall(request(b'{"id":"last"}'))
        time.sleep(2.5)
        publisher.release()
        assert answers(wire, 1) == [200]
        begun_s = time.monotonic()
        assert wire.recv(1) == b""
        assert time.monotonic() - begun_s > 1.9


def test_what_is_wrong_with_an_event_a_body_or_a_stream_is_told_as_ever(
    wire: socket.socket, gateway: RunningGateway
) -> None:
    assert asked(wire, request(b'[{"id":"a"},{"id":""}]')) == 200
    assert asked(wire, request(b'[{"id":"a"},1]')) == 207
    assert asked(wire, request(b'[{"id":"a"},1]', "Prefer: handling=strict\r\n")) == 422
    assert asked(wire, request(b"[1]")) == 422
    assert asked(wire, request(b"{")) == 400
    assert asked(wire, request(b'{"id":"\xff"}')) == 400
    assert asked(wire, request(b'{"id":"a"}').replace(b"/orders/", b"/none/")) == 404
    assert asked(wire, request(b'{"id":"a"}', "X-Forwarded-For: 1.1.1.1\r\n")) == 403
    counted = dict.fromkeys(("200", "207", "400", "403", "404", "422"), 0.0)
    for status in counted:
        name = "hifi_gateway_requests_total"
        counted[status] = gateway.sample(name, route="events", status=status)
    assert counted == {"200": 1, "207": 1, "400": 2, "403": 1, "404": 1, "422": 2}


def test_a_key_counts_as_long_as_it_is_there_and_a_quota_as_soon_as_it_is(
    publisher: FakePublisher,
) -> None:
    key = ApiKey("ours", (secret_from(KEY, signs=False),), tenant="acme")
    streams = {"orders": Stream("orders", tenant="acme")}
    config = FixedConfig(Configuration(streams=streams, keys={"ours": key}))
    with (
        running_gateway(publisher, config, Settings(auth="keys")) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as wire,
    ):
        mine = request(b'{"id":"a"}', f"Authorization: Bearer {KEY}\r\n")
        assert asked(wire, request(b'{"id":"a"}')) == 401
        assert [asked(wire, mine) for _ in range(3)] == [200] * 3
        few = {"acme": Tenant("acme", requests_per_s=1)}
        config.configuration = Configuration(streams=streams, keys={"ours": key}, tenants=few)
        assert [asked(wire, mine) for _ in range(4)][-1] == 429
        config.configuration = Configuration(streams=streams)
        assert asked(wire, mine) == 401


def test_bytes_of_requests_under_way_are_bounded_and_given_back(
    publisher: FakePublisher, config: FixedConfig
) -> None:
    settings = Settings(auth="off", body_bytes_max=40_000, in_flight_bytes_max=50_000)
    body = b'{"id":"a","x":"%b"}' % (b"x" * 30_000)
    with (
        running_gateway(publisher, config, settings) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as first,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as second,
    ):
        publisher.hold()
        first.sendall(request(body))
        assert publisher.published.wait(10)
        assert asked(second, request(body)) == 503
        publisher.release()
        assert answers(first, 1) == [200]
        assert asked(second, request(body)) == 200
        assert gateway.sample("hifi_gateway_in_flight_bytes") == 0


@pytest.mark.parametrize("more", MORE_HEADERS)
def test_the_door_and_the_way_of_all_others_give_the_same_answer_and_store_the_same(
    gateway: RunningGateway, publisher: FakePublisher, more: str
) -> None:
    """A request in two pieces passes through uvicorn."""
    for body in BODIES:
        data, found = request(body, more), []
        for cut in (len(data), len(data) - 5):
            publisher.logs[TOPIC] = [[] for _ in publisher.logs[TOPIC]]
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as wire:
                wire.sendall(data[:cut])
                if cut < len(data):
                    wait_until(lambda: is_at_work(gateway), what="a piece was read", look_s=0.01)
                    wire.sendall(data[cut:])
                wire.shutdown(socket.SHUT_WR)
                answer = MADE.sub(b"-", wire.makefile("rb").read())
            wait_until(
                lambda: not gateway.server.server_state.connections, what="it ends", look_s=0.01
            )
            events = [(one.id, one.key, one.value) for one in publisher.stored(TOPIC)]
            stored = sorted(repr((MADE.sub(b"-", each[0].encode()), each[1:])) for each in events)
            found.append((sorted(answer.split(b"\r\n")), stored))
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "head",
    [
        "GET /v1/streams/orders/events HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n",
        "POST /v1/streams/orders/events HTTP/1.0\r\nhost: g\r\ncontent-length: 2\r\n\r\n",
        "POST /v1/streams/orders/events?dry_run HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n",
        "POST /v1/streams/orders/beacon HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n",
        "POST /v1/streams/%6frders/events HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n",
        "POST /v1/streams/orders/events HTTP/1.1\r\ncontent-length: 2\r\n\r\n",
        "POST /v1/streams/orders/events HTTP/1.1\r\nhost: g\r\n\r\n",
        *(
            f"POST /v1/streams/orders/events HTTP/1.1\r\nhost: g\r\n{more}\r\n"
            "content-type: application/json\r\ncontent-length: 2\r\n\r\n"
            for more in (
                "host: g",
                "content-length: 2",
                "content-length : 2",
                "connection: close",
                "connection: upgrade\r\nupgrade: h2c",
                "expect: 100-continue",
                "transfer-encoding: chunked",
                "origin: https://shop.example",
                "content-encoding: gzip",
                "content-type: text/plain",
                "idempotency-key: one",
                "ce-specversion: 1.0",
                "bad header: x",
                "long: " + 4_096 * "x",
                " folded",
            )
        ),
    ],
)
def test_whatever_is_unusual_in_a_head_is_left_to_those_who_read_all(head: str) -> None:
    assert read_whole_head(request(b"[]"), head_bytes_max=32_768) is not None
    assert read_whole_head(head.encode() + b"[]", head_bytes_max=32_768) is None
    assert read_whole_head(head.encode(), head_bytes_max=32_768) is None
