"""A request of one event takes few function calls; a busy machine does not change their number.

Benchmarks showed 30 more calls only as noise. Each rule cost little, but together they took an
eighth of a request's processor time. If a new rule needs more calls, raise the figure, and say in
the commit what it buys.
"""

import inspect
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import pytest

from gateway.intake.events import Event
from gateway.publish.ledger import AckLedger
from gateway.publish.open_topic import Tell
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, running_gateway

ROOT = Path(inspect.getfile(AckLedger)).parents[2]
OURS = tuple(f"{ROOT / room}/" for room in ("gateway", "shared"))
# There are 169 calls to and from our functions, 28 of them for the ledger; the rest is room for a
# small rule or another version of Python. There were 266 calls when uvicorn ran each request as a
# task, with a scope and messages.
CALLS_MAX = 178
REQUESTS = 20
BODY = b'{"id":"one","type":"play.paused"}'
HEAD = (
    b"POST /v1/streams/orders/events HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)
)


@pytest.fixture
def calls() -> Iterator[Counter[str]]:
    """Count calls to and from our functions, in threads that start from now on."""
    counted: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        is_call = event == "call" and (is_ours(frame) or is_ours(frame.f_back))
        if is_call or (event == "c_call" and is_ours(frame)):
            counted[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

    threading.setprofile(note)
    try:
        yield counted
    finally:
        threading.setprofile(None)


def is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(OURS)


class BusyPublisher(FakePublisher):
    """A publisher that does deferred work for ten requests together, as under load."""

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(topics)
        self._posted = 0
        self._later: list[Callable[[], None]] = []

    def meanwhile(self, work: Callable[[], None]) -> None:
        self._later.append(work)

    def post(self, topic: str, events: Sequence[Event], tell: Tell) -> bool:
        self._posted += 1
        if self._posted % 10 == 0:
            later, self._later = self._later, []
            for work in later:
                work()
        return super().post(topic, events, tell)


def test_a_request_of_one_event_takes_few_calls(calls: Counter[str]) -> None:
    publisher = BusyPublisher([stream_topic("orders")])
    config = FixedConfig(Configuration(streams={"orders": Stream("orders")}))
    with (
        running_gateway(publisher, config, ledger=AckLedger(publisher)) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as line,
    ):
        post(line)
        calls.clear()
        for _ in range(REQUESTS):
            post(line)
    each = {name: count for name, count in calls.items() if count >= REQUESTS}
    assert len(publisher.stored(stream_topic("orders"))) == REQUESTS + 1
    assert sum(each.values()) <= CALLS_MAX * REQUESTS, "\n".join(
        f"{count / REQUESTS:g} {name}" for name, count in each.items()
    )


def post(line: socket.socket) -> None:
    """Send head and body in one piece, as the number of pieces would change the figure."""
    line.sendall(HEAD + BODY)
    answer = b""
    while not answer.endswith(b"}"):
        answer += line.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 200 ")
