"""Replies that report on each event: only a whole one counts, and a long one is read."""

import gzip
import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from delivery.http.partial_reply import PARTIAL_TYPE
from shared.config.destination import Destination
from shared.event.record import RecordOut
from shared.event.topics import retry_topic
from shared.proof.receipt import ReceiptOutcome
from tests.support.delivery.deliver_runs import covered, events, opened, plan_for, run, sample
from tests.support.servers.raw_server import raw_server
from tests.support.servers.scripted_destination import Reply, Script, scripted_destination

COUNT = 600
TYPES = ["application/json", PARTIAL_TYPE, PARTIAL_TYPE.upper()]
# A report of failures only, longer than the limit for all other replies.
FAILED = {"failed": [{"id": f"e{at}", "status": 503, "why": "x" * 90} for at in range(COUNT)]}
REPORT = json.dumps(FAILED).encode()


def is_all_in_doubt(outcomes: list[RecordOut]) -> bool:
    histories = [opened(row) for row in outcomes if row.topic == retry_topic("30s")]
    # The server may still be busy with the first try when the retry in place arrives.
    assert {each.cause for each in histories} <= {"response_unreadable", "read_timeout"}
    return len(histories) == COUNT and all(each.is_ambiguous for each in histories)


def test_a_report_of_any_sensible_length_is_read() -> None:
    assert len(REPORT) > 65_536
    reply = Reply(207, {"content-type": "application/json"}, REPORT)
    with scripted_destination(lambda _, __: reply) as destination:
        outcomes = run(events(COUNT), plan_for(sample(destination, batch_count_max=1_000)))
    assert len(covered(outcomes, ReceiptOutcome.WAITING)) == COUNT
    assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 0


def read_all(connection: socket.socket) -> None:
    """Read a whole request, however long."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    (length,) = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    ]
    while len(body) < length:
        body += connection.recv(65_536)


def answering(
    content_type: str, body: bytes, framing: bytes, end: Callable[[socket.socket], object]
) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        read_all(connection)
        head = b"HTTP/1.1 207 Multi-Status\r\ncontent-type: %b\r\n%b\r\n"
        connection.sendall(head % (content_type.encode(), framing) + body)
        end(connection)

    return behave


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def silence(_: socket.socket) -> None:
    time.sleep(1.5)


HALF = REPORT[: len(REPORT) // 2]
LENGTH = b"content-length: %d\r\n" % len(REPORT)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(HALF), HALF)


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize(
    ("framing", "body", "end"),
    [
        (LENGTH, HALF, socket.socket.close),
        (LENGTH, HALF, silence),
        (CHUNKED, CHUNK, socket.socket.close),
        (CHUNKED, CHUNK, reset),
        (b"", HALF, reset),
        (b"content-length: 9000000\r\n", b" " * 5_000_000, silence),
    ],
    ids=["closed", "deadline", "chunked", "chunked, reset", "unframed, reset", "too long"],
)
def test_a_report_that_was_cut_leaves_all_of_it_in_doubt(
    content_type: str, framing: bytes, body: bytes, end: Callable[[socket.socket], object]
) -> None:
    with raw_server(answering(content_type, body, framing, end)) as url:
        to = replace(destination_at(url), timeout_s=1.0)
        outcomes = run(events(COUNT), plan_for(to, time_box_s=0.5))
    assert is_all_in_doubt(outcomes)


def destination_at(url: str) -> Destination:
    return Destination("demo", "sample", url, batch_count_max=1_000)


def test_a_report_that_ends_with_its_connection_is_whole() -> None:
    with raw_server(answering("application/json", REPORT, b"", socket.socket.close)) as url:
        outcomes = run(events(COUNT), plan_for(destination_at(url)))
    assert len(covered(outcomes, ReceiptOutcome.WAITING)) == COUNT


def always_with(reply: Reply) -> Script:
    return lambda _, __: reply


def test_an_empty_report_of_our_type_is_none_and_an_empty_207_is_a_success() -> None:
    for reply, outcome in (
        (Reply(200, {"content-type": PARTIAL_TYPE}, b""), ReceiptOutcome.WAITING),
        (Reply(207, body=b""), ReceiptOutcome.DELIVERED),
    ):
        with scripted_destination(always_with(reply)) as destination:
            outcomes = run(events(3), plan_for(sample(destination)))
        assert len(covered(outcomes, outcome)) == 3


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/problem+json", "text/plain"]
)
def test_a_report_that_is_packed_unasked_leaves_all_of_it_in_doubt(content_type: str) -> None:
    """If it were taken for an answer without a report, all events would count as delivered."""
    headers = {"content-type": content_type, "content-encoding": "gzip"}
    reply = Reply(207, headers, gzip.compress(REPORT))
    with scripted_destination(always_with(reply)) as destination:
        outcomes = run(events(COUNT), plan_for(sample(destination, batch_count_max=1_000)))
    assert destination.requests[0].headers["accept-encoding"] == "identity"
    assert is_all_in_doubt(outcomes)


def test_a_2xx_that_comes_before_all_was_sent_is_no_success() -> None:
    """A destination cannot accept events that it has not read, but may refuse them early."""

    def early(status: bytes) -> Callable[[socket.socket], None]:
        def behave(connection: socket.socket) -> None:
            connection.recv(1_000)
            connection.sendall(b"HTTP/1.1 %b\r\ncontent-length: 2\r\n\r\nok" % status)
            # If it closed at once, the rest of the request would reset the connection.
            time.sleep(0.5)

        return behave

    # Far more than the kernel buffers.
    big = [replace(one, value=b'"%b"' % (b"x" * 1_000_000)) for one in events(20)]
    for status, cause in ((b"200 OK", "response_unreadable"), (b"503 No", "status_503")):
        with raw_server(early(status)) as url:
            to = replace(destination_at(url), batch_bytes_max=64 * 1_048_576, timeout_s=5.0)
            outcomes = run(big, plan_for(to, time_box_s=0.5))
        histories = [opened(row) for row in outcomes if row.topic == retry_topic("30s")]
        assert {each.cause for each in histories} == {cause}
        assert len(histories) == 20
