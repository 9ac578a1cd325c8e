"""Ambiguous heads over raw sockets, and what the standards require of a server."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from gateway.settings import Settings
from shared.event.topics import stream_topic
from shared.runtime.kafka.lookup.stream_pages import Cursor, StreamPage, StreamPages
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
BODY = b'[{"id":"a"}]'
USUAL = ("host: g", "content-type: application/json", f"content-length: {len(BODY)}")


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config_with("orders"), Settings(auth="off")) as running:
        yield running


def head(*lines: str, path: str = PATH) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "\r\n"]).encode("latin-1")


def exchange(gateway: RunningGateway, *pieces: bytes) -> tuple[int, dict[str, object]]:
    """Send each piece in its own segment, then close; return the answer's status and body."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            wire.sendall(piece)
        # The client has sent everything (RFC 9112, 9.6: it may half-close); it awaits its answer.
        wire.shutdown(socket.SHUT_WR)
        answer = wire.makefile("rb").read()
    status, _, body = answer.partition(b"\r\n\r\n")
    return int(status.split()[1]), json.loads(body or b"{}")


@pytest.mark.parametrize("request_count", [1, 2, 3])
def test_who_half_closes_is_answered(
    gateway: RunningGateway, publisher: FakePublisher, request_count: int
) -> None:
    publisher.hold()
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        wire.sendall((head(*USUAL) + BODY) * request_count)
        assert publisher.published.wait(5)
        wire.shutdown(socket.SHUT_WR)
        # Once this is answered, the gateway has seen the close.
        assert gateway.client.get("/v1/streams").status_code == 200
        publisher.release()
        answers = wire.makefile("rb").read()
    assert answers.count(b"HTTP/1.1 200 OK") == request_count
    assert len(publisher.stored(TOPIC)) == request_count


def test_who_has_left_during_the_first_look_at_a_stream_is_not_waited_for(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, has_left, told = threading.Event(), threading.Event(), list[str]()

    async def since(*_: object, **__: object) -> StreamPage:
        looking.set()
        while not has_left.is_set():  # noqa: ASYNC110 - the test's own thread sets it
            await asyncio.sleep(0.01)
        told.append("looked")
        return StreamPage((), newer=Cursor.of("0"))

    async def coming(*_: object, **__: object) -> StreamPage:
        told.append("waits")
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(StreamPages, "since", since)
    monkeypatch.setattr(StreamPages, "coming", coming)
    with socket.create_connection(("127.0.0.1", gateway.port)) as leaving:
        path = f"{PATH}?after=0&wait_s=20"
        leaving.sendall(f"GET {path} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
        assert looking.wait(10)
    # Once this is answered, the gateway has seen the close.
    assert gateway.client.get("/v1/streams").status_code == 200
    has_left.set()
    wait_until(lambda: not gateway.server.server_state.tasks, what="the request has ended")
    assert told == ["looked"]


def test_a_body_that_ends_early_is_not_answered_with_success(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        wire.sendall(head(*USUAL) + BODY[:-1])
        wire.shutdown(socket.SHUT_WR)
        assert wire.makefile("rb").read() == b""
    assert publisher.stored(TOPIC) == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            "authorization: Bearer x",
            "content-encoding: identity",
            "ce-id: a",
            "x-partition-key: a",
        ),
        *("content-type: application/json", "idempotency-key: a", "host: g", "origin: null"),
    ],
)
def test_what_may_stand_there_once_stands_there_once(
    gateway: RunningGateway, publisher: FakePublisher, line: str
) -> None:
    status, answer = exchange(gateway, head(*USUAL, line, line) + BODY)
    assert (status, answer["code"]) == (400, "bad_header")
    assert line.partition(":")[0] in str(answer["detail"])
    assert publisher.stored(TOPIC) == []


def test_preferences_in_two_lines_add_up(gateway: RunningGateway) -> None:
    # RFC 7240, 2: several Prefer lines count as one.
    lines = ("prefer: handling=strict", "prefer: return=minimal")
    status, answer = exchange(
        gateway, head(*USUAL[:2], *lines, "content-length: 12") + b"[{},     3 ]"
    )
    assert (status, answer["code"]) == (422, "strict_rejected")


@pytest.mark.parametrize("host", [None, "a b", "a/b", "[::1", "a:b", "a,b@c"])
def test_a_host_that_is_none_is_400(gateway: RunningGateway, host: str | None) -> None:
    # RFC 9112, 3.2: a server MUST answer 400.
    lines = USUAL[1:] if host is None else (f"host: {host}", *USUAL[1:])
    status, answer = exchange(gateway, head(*lines) + BODY)
    assert (status, answer["code"]) == (400, "bad_header")


def test_http_1_0_needs_no_host(gateway: RunningGateway) -> None:
    status, answer = exchange(gateway, head(*USUAL[1:]).replace(b"/1.1", b"/1.0") + BODY)
    assert (status, answer["accepted"]) == (200, 1)


@pytest.mark.parametrize("path", ["/v1/streams%2Forders/events", "/v1/streams/orders%2fevents"])
def test_an_encoded_slash_is_no_slash(gateway: RunningGateway, path: str) -> None:
    status, answer = exchange(gateway, head(*USUAL, path=path) + BODY)
    assert (status, answer["code"]) == (404, "not_found")


def test_a_coding_before_chunked_is_501(gateway: RunningGateway, publisher: FakePublisher) -> None:
    # RFC 9112, 6.1: a server that does not understand a transfer coding SHOULD answer 501.
    lines = (*USUAL[:2], "transfer-encoding: gzip, chunked")
    status, answer = exchange(gateway, head(*lines) + b"c\r\n" + BODY + b"\r\n0\r\n\r\n")
    assert (status, answer["code"]) == (501, "unknown_transfer_coding")
    assert publisher.stored(TOPIC) == []


def test_blanks_behind_a_value_are_no_part_of_it(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    # RFC 9112, 5.1.
    status, _ = exchange(gateway, head(*USUAL, "x-partition-key: k \t") + BODY)
    assert status == 200
    assert [event.key for event in publisher.stored(TOPIC)] == [b"k"]


@pytest.mark.parametrize(
    "media_type", ["application/json\xa0", "application/json\xa0; charset=utf-8"]
)
def test_other_blanks_are_no_blanks(gateway: RunningGateway, media_type: str) -> None:
    lines = (USUAL[0], f"content-type: {media_type}", USUAL[2])
    assert exchange(gateway, head(*lines) + BODY)[0] == 415


@pytest.mark.parametrize("byte_count", [32_000, 33_500, 60_000])
@pytest.mark.parametrize("segment_bytes", [1_000, 20_000, 100_000])
def test_the_cap_on_a_head_is_the_same_however_it_is_cut(
    gateway: RunningGateway, byte_count: int, segment_bytes: int
) -> None:
    whole = head(*USUAL, "x-a: " + "a" * (byte_count - len(head(*USUAL)) - 7)) + BODY
    assert len(whole) == byte_count + len(BODY)
    pieces = [whole[at : at + segment_bytes] for at in range(0, len(whole), segment_bytes)]
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        wire.sendall(pieces[0])
        for piece in pieces[1:]:
            try:
                wire.sendall(piece)
            except ConnectionError:
                break
        answer = wire.makefile("rb").readline()
    assert answer.split()[1] == (b"200" if byte_count < 32_768 else b"431")


def test_who_waits_to_be_told_is_not_told_to_send_too_much(gateway: RunningGateway) -> None:
    lines = (*USUAL[:2], "content-length: 5000001", "expect: 100-continue")
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        wire.sendall(head(*lines))
        answer = wire.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer


@pytest.mark.parametrize("query", ["dryrun=true", "result=all", "_=1", "key=x"])
def test_a_query_that_is_not_known_stores_nothing(
    gateway: RunningGateway, publisher: FakePublisher, query: str
) -> None:
    status, answer = exchange(gateway, head(*USUAL, path=f"{PATH}?{query}") + BODY)
    assert (status, answer["code"]) == (400, "bad_query")
    assert publisher.stored(TOPIC) == []
    if query == "dryrun=true":
        assert "did you mean 'dry_run'?" in str(answer["detail"])
