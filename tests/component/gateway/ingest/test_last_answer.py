"""A connection serves nothing after its last answer, and does not affect other senders."""

import asyncio
import socket
import time
from collections.abc import Sequence
from functools import partial

import pytest

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from gateway.publish.accumulator import Accumulator
from gateway.publish.open_topic import OpenTopic, Tell
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import config_with, running_gateway

TOPIC = stream_topic("orders")


class Gathering(FakePublisher):
    """A publisher with a real accumulator, from which Kafka takes all events."""

    _opened: OpenTopic | None = None

    def post(self, _: str, events: Sequence[Event], tell: Tell) -> bool:
        if self._opened is None:

            async def gate() -> None:
                pass

            async def send(*_: object) -> int:
                await asyncio.sleep(0)
                return 0

            only = Accumulator(0, partial(RecordBatch, 1_000_000), send, gate)
            self._opened = OpenTopic([only], turn_bytes=1)
        self._opened.take(events, tell, now_s=time.monotonic(), now_ms=1)
        return True


def request(body: bytes, host: str = "Host: g\r\n") -> bytes:
    head = f"POST /v1/streams/orders/events HTTP/1.1\r\n{host}Content-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("second", [b'{"id":"b"}', b"[1]"])
def test_what_comes_behind_the_last_answer_of_a_connection_is_dropped(second: bytes) -> None:
    with running_gateway(Gathering([TOPIC]), config_with("orders")) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
            refused = request(b'{"id":"a"}', host="")
            wire.sendall(refused[:-4])
            assert b" 400 " in wire.recv(65_536)
            for piece in (refused[-4:], request(second)):
                wire.sendall(piece)
                # Once a later request is answered, the gateway has read that piece.
                assert gateway.client.get("/").status_code == 404
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=8) as wire:
            wire.sendall(request(b'{"id":"c"}'))
            assert b" 200 " in wire.recv(65_536)
        assert gateway.sample("hifi_gateway_in_flight_bytes") == 0
