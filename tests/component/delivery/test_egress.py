"""A destination's settings shape its requests: our identity, the contents, the permitted hosts."""

import asyncio
import gzip
import json
from typing import Any

import pytest
from backports import zstd
from standardwebhooks import Webhook

from delivery.http.sender import Sender
from shared.config.credentials import Basic, Bearer, OAuth2
from shared.config.destination import Destination
from shared.config.signing import signing_secret
from shared.retry.attempt import Attempt, Failure, Response
from shared.runtime.secret_box import SecretBox, new_key
from tests.support.delivery.egress_sends import BOX, a_destination, failure, seal, send
from tests.support.servers.raw_server import raw_server, read_request
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    always,
    in_turn,
    scripted_destination,
)

# Our identity


def test_a_user_and_a_password_go_with_each_request() -> None:
    with scripted_destination() as destination:
        to = a_destination(destination.url, auth=Basic("me", seal("p\u00e4ss:word")))
        assert send(to) == [Response(200)]
        (request,) = destination.requests
    assert request.headers["authorization"] == "Basic bWU6cMOkc3M6d29yZA=="


def test_a_token_and_headers_go_with_each_request() -> None:
    with scripted_destination() as destination:
        to = a_destination(
            destination.url,
            auth=Bearer(seal("t0ken")),
            headers={"X-Plain": "a b", "User-Agent": "acme"},
            secret_headers={"x-api-key": seal("k3y")},
        )
        send(to)
        (request,) = destination.requests
    assert request.headers["authorization"] == "Bearer t0ken"
    assert request.headers["x-plain"] == "a b"
    assert request.headers["x-api-key"] == "k3y"
    assert request.headers["user-agent"] == "acme"


def test_a_secret_that_does_not_open_is_no_fault_of_the_destination() -> None:
    with scripted_destination() as destination:
        for box in (SecretBox([]), SecretBox([new_key()])):
            to = a_destination(destination.url, auth=Bearer(seal("t0ken")))
            assert failure(send(to, box=box)) is Failure.SECRET_UNAVAILABLE
        theirs = BOX.seal("t0ken", owner="demo/other")
        to = a_destination(destination.url, auth=Bearer(theirs))
        assert failure(send(to)) is Failure.SECRET_UNAVAILABLE
        assert destination.requests == []


def token_service(requests: list[Request], *lives_s: int) -> Any:
    def answer(number: int, request: Request) -> Reply:
        requests.append(request)
        life_s = lives_s[min(number, len(lives_s) - 1)]
        token = {"access_token": f"t{number}", "token_type": "Bearer", "expires_in": life_s}
        return Reply(200, body=json.dumps(token).encode())

    return answer


def an_oauth2(token_url: str) -> OAuth2:
    return OAuth2(token_url, "me", seal("s3cret&"), scope="events:write")


def test_a_token_is_fetched_once_and_used_again() -> None:
    asked: list[Request] = []
    with (
        scripted_destination(token_service(asked, 3600)) as service,
        scripted_destination() as destination,
    ):
        to = a_destination(destination.url, auth=an_oauth2(service.url))
        assert send(to, times=3) == [Response(200)] * 3
        tokens = [request.headers["authorization"] for request in destination.requests]
    assert tokens == ["Bearer t0"] * 3
    (request,) = asked
    assert request.headers["authorization"] == "Basic bWU6czNjcmV0JTI2"
    assert request.body == b"grant_type=client_credentials&scope=events%3Awrite"


# The token's lifetime, as the token service states it -> whether the token is usable.
LIVES = {
    "1" * 400: False,
    "9" * 5_000: False,
    "NaN": False,
    '"soon"': False,
    "1e999": True,
    "-5": True,
    '"7200"': True,
    "null": True,
}


@pytest.mark.parametrize("life", LIVES)
def test_whatever_is_said_of_a_tokens_life_nothing_breaks(life: str) -> None:
    said = b'{"access_token": "t", "expires_in": %b}' % life.encode()
    with (
        scripted_destination(lambda _, __: Reply(200, body=said)) as service,
        scripted_destination() as destination,
    ):
        to = a_destination(destination.url, auth=an_oauth2(service.url))
        (attempt,) = send(to)
    if LIVES[life]:
        assert attempt == Response(200)
    else:
        assert failure([attempt]) is Failure.TOKEN_UNAVAILABLE


def test_many_requests_wait_for_one_token() -> None:
    asked: list[Request] = []

    async def side_by_side(to: Destination) -> list[Attempt]:
        sender = Sender(allows_private=True, box=BOX)
        attempts = await asyncio.gather(*(sender.post(to, b"[1]", {}) for _ in range(8)))
        await sender.close()
        return attempts

    with (
        scripted_destination(token_service(asked, 3600)) as service,
        scripted_destination() as destination,
    ):
        to = a_destination(destination.url, auth=an_oauth2(service.url))
        assert asyncio.run(side_by_side(to)) == [Response(200)] * 8
    assert len(asked) == 1


def test_a_token_that_is_refused_is_replaced_once() -> None:
    asked: list[Request] = []
    with scripted_destination(token_service(asked, 3600)) as service:
        with scripted_destination(in_turn(200, 401, 200)) as destination:
            to = a_destination(destination.url, auth=an_oauth2(service.url))
            assert send(to, times=2) == [Response(200), Response(200)]
            tokens = [request.headers["authorization"] for request in destination.requests]
        assert tokens == ["Bearer t0", "Bearer t0", "Bearer t1"]
        with scripted_destination(always(401)) as destination:
            to = a_destination(destination.url, auth=an_oauth2(service.url))
            (attempt,) = send(to)
            assert isinstance(attempt, Response)
            assert attempt.status == 401
            assert len(destination.requests) == 2


def test_a_doubt_about_a_first_copy_outlives_a_refused_token() -> None:
    replies = [Reply(200), Reply(200, breaks_off=True), Reply(401), Reply(200)]
    with (
        scripted_destination(token_service([], 3600)) as service,
        scripted_destination(lambda number, _: replies[number]) as destination,
    ):
        to = a_destination(destination.url, auth=an_oauth2(service.url))
        assert send(to, times=2) == [Response(200), Response(200, is_resent=True)]
        labels = ["hifi-maybe-duplicate" in request.headers for request in destination.requests]
        assert labels == [False, False, True, True]


def test_a_token_service_that_is_down_is_no_fault_of_the_destination() -> None:
    with scripted_destination() as destination:
        for script in (
            always(500),
            always(401),
            lambda _, __: Reply(200, body=b"{}"),
            lambda _, __: Reply(200, body=b"<html>"),
            lambda _, __: Reply(200, body=b'{"access_token": "a\\r\\nb"}'),
        ):
            with scripted_destination(script) as service:
                to = a_destination(destination.url, auth=an_oauth2(service.url))
                attempts = send(to, times=3)
                # The token service is not asked again at once.
                assert len(service.requests) == 1
            assert {failure([attempt]) for attempt in attempts} == {Failure.TOKEN_UNAVAILABLE}
        assert destination.requests == []


# Contents of a request


def test_a_receiver_can_check_the_signature_with_either_secret() -> None:
    old, new = signing_secret(b"o" * 32), signing_secret(b"n" * 32)
    with scripted_destination() as destination:
        send(a_destination(destination.url, signing_secrets=(seal(new), seal(old))))
        (request,) = destination.requests
    for secret in (old, new):
        assert Webhook(secret).verify(request.body, request.headers) == [1]


def test_a_signature_is_made_anew_for_each_attempt() -> None:
    secret = signing_secret(b"s" * 32)

    async def twice(to: Destination) -> None:
        sender = Sender(allows_private=True, box=BOX)
        for timestamp_s in ("1700000000", "1700000030"):
            headers = {"webhook-id": "msg_1", "webhook-timestamp": timestamp_s}
            await sender.post(to, b"[1]", headers)
        await sender.close()

    with scripted_destination() as destination:
        asyncio.run(twice(a_destination(destination.url, signing_secrets=(seal(secret),))))
        signatures = {request.headers["webhook-signature"] for request in destination.requests}
    assert len(signatures) == 2


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_compressed_body_is_verified_by_whom_it_is_unpacked_for(compression: Any) -> None:
    """Web servers and frameworks unpack first, so a receiver's library sees the unpacked body."""
    body = json.dumps(["the same"] * 100).encode()
    secret = signing_secret(b"s" * 32)
    with scripted_destination() as destination:
        send(
            a_destination(
                destination.url, compression=compression, signing_secrets=(seal(secret),)
            ),
            body,
        )
        (request,) = destination.requests
    assert request.headers["content-encoding"] == compression
    unpacked = (gzip.decompress if compression == "gzip" else zstd.decompress)(request.body)
    assert len(request.body) < len(body) / 5
    assert Webhook(secret).verify(unpacked, request.headers) == ["the same"] * 100


def test_the_path_and_the_query_go_as_they_are() -> None:
    targets: list[bytes] = []

    def answer(connection: Any) -> None:
        targets.append(read_request(connection).split(b" ")[1])
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with raw_server(answer) as url:
        for path in ("a/%2Fb?x=1&y=%20", "caf\u00e9?q=\u00fc#part", "?only=query"):
            assert send(a_destination(url + path)) == [Response(200)]
    assert targets == [b"/a/%2Fb?x=1&y=%20", b"/caf%C3%A9?q=%C3%BC", b"/?only=query"]
