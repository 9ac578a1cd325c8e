"""Unreadable records are an error of their own log alone: the same answer has other logs' records.

Everything else about a `LogClient` is tested in tests/contract/test_log_client.py.
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.protocol.offset import OffsetRequest_v3, OffsetResponse_v3
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from shared.event.record import KafkaPartition
from shared.runtime.kafka.log_client import (
    FetchAnswer,
    LogClient,
    ManyOffsetsRequest,
    OffsetAnswer,
    _opened,
)

WHERE = KafkaPartition("hifi.stream.s", 0)
NAME = "name-to-be"
CODECS = (0, 1, 3, 4)
NO_END = 1 << 40
# The checksum's offset in a batch, and the offset of the bytes that it covers.
_CRC_AT, _CRC_OF = 17, 21


def batch(count: int, *, first: int = 0, codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1_000_000)
    for number in range(count):
        headers = [("event-id", b"%d" % number), (NAME, None)]
        builder.append(number, 1_000 + number, b"k", b"v%d" % number, headers)
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, first)
    return bytes(raw)


def signed(raw: bytearray) -> bytes:
    """Return the batch with a valid checksum of its present content."""
    struct.pack_into(">I", raw, _CRC_AT, calc_crc32c(bytes(raw[_CRC_OF:])))
    return bytes(raw)


def misnamed(raw: bytes) -> bytes:
    """Return the batch with a header whose name is not text."""
    assert NAME.encode() in raw
    return signed(bytearray(raw.replace(NAME.encode(), b"\xff\xfe" + NAME[2:].encode())))


def told(answer: FetchAnswer) -> Sequence[tuple[int, int, bytes, bytes, Any]]:
    assert answer.error is None
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in answer.records]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_as_they_were_written(codec: int) -> None:
    answer = _opened(WHERE, batch(3, first=7, codec=codec), 8, [], NO_END)
    assert answer.reached == 10
    assert told(answer) == [
        (7 + n, 1_000 + n, b"k", b"v%d" % n, [("event-id", b"%d" % n), (NAME, None)])
        for n in (1, 2)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_large_once_it_is_unpacked_comes_in_parts(codec: int) -> None:
    """These identical events take a hundred times as many bytes as they did on the wire."""
    batches = [batch(40, first=first, codec=codec) for first in (0, 40)]
    reached, parts = 0, 0
    found: list[int] = []
    while reached < 80:
        # Reading starts at the batch that contains the offset.
        answer = _opened(WHERE, b"".join(batches[reached // 40 :]), reached, [], 6_000)
        assert len(answer.records) <= 12
        assert answer.reached > reached
        found += [record.offset for record in answer.records]
        reached, parts = answer.reached, parts + 1
    assert found == list(range(80))
    assert parts > 6


def test_where_a_broker_does_not_say_what_there_was_at_a_time_its_end_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may answer when asked for the log's end, but a lane that begins there skips events."""
    at_ms, places = 1_000, [KafkaPartition("hifi.stream.s", number) for number in range(4)]
    known, older, silent, gone = places

    async def offsets(_: LogClient, times_ms: Mapping[KafkaPartition, int]) -> dict[Any, int]:
        if at_ms in times_ms.values():
            return {known: 3, older: -1, gone: -1}
        return {it: 9 for it in (known, older, silent) if it in times_ms}

    monkeypatch.setattr(LogClient, "_offsets", offsets)
    log = object.__new__(LogClient)
    assert asyncio.run(log.offsets_at(places, at_ms)) == {known: 3, older: 9}


def test_a_header_whose_name_is_no_text_ends_no_lane() -> None:
    """Only programs that bypass the gateway write such headers; the events are sent."""
    bad = misnamed(batch(2))
    answer = _opened(WHERE, bad + batch(1, first=2, codec=3), 0, [], NO_END)
    assert answer.reached == 3
    assert [row[:4] for row in told(answer)] == [
        (0, 1_000, b"k", b"v0"),
        (1, 1_001, b"k", b"v1"),
        (2, 1_000, b"k", b"v0"),
    ]
    names = [[name for name, _ in row[4]] for row in told(answer)]
    assert names == [["event-id", "\ufffd\ufffdme-to-be"]] * 2 + [["event-id", NAME]]


def test_patience_reads_all_that_haste_does() -> None:
    """Both ways give the same records, compressed or not."""
    for codec in CODECS:
        raw = batch(20, codec=codec)
        bad = misnamed(batch(1, first=20))
        hasty, patient = (
            _opened(WHERE, raw, 3, [], NO_END),
            _opened(WHERE, raw + bad, 3, [], NO_END),
        )
        assert told(patient)[:-1] == told(hasty)
        assert (hasty.reached, patient.reached) == (20, 21)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_no_decoder_takes_is_an_error_of_that_log_alone(codec: int) -> None:
    """An exception would end the job of all who share it, again and again."""
    raw = bytearray(batch(1))
    # The batch claims to be compressed.
    struct.pack_into(">h", raw, _CRC_OF, codec)
    answer = _opened(WHERE, signed(raw), 0, [], NO_END)
    assert isinstance(answer.error, CorruptRecordException)
    assert not answer.is_gone


def test_a_log_that_was_damaged_says_so() -> None:
    raw = batch(1)
    damaged = raw[:_CRC_OF] + raw[_CRC_OF:].replace(b"v0", b"v1")
    assert isinstance(_opened(WHERE, damaged, 0, [], NO_END).error, CorruptRecordException)


def test_who_asks_hears_within_a_minute_that_a_topic_was_grown() -> None:
    """The promise of docs/kafka.md; aiokafka's own clients ask only once in five minutes."""

    async def asks_within_ms() -> int:
        client = LogClient("kafka:1")._client
        return int(client._metadata_max_age_ms)

    assert asyncio.run(asks_within_ms()) <= 60_000


def test_whoever_must_not_be_held_up_says_how_long_a_broker_may_take() -> None:
    async def waits_ms() -> list[int]:
        clients = [LogClient("kafka:1"), LogClient("kafka:1", answer_within_s=5.0)]
        return [client._client._request_timeout_ms for client in clients]

    usual_ms, hurried_ms = asyncio.run(waits_ms())
    assert usual_ms > hurried_ms == 5_000


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [("hifi.stream.s", [(0, -1)])],
        [("hifi.stream.s", [(0, -1), (7, -2)]), ("hifi.stream.straße", [(2**31 - 1, NO_END)])],
    ],
)
def test_where_logs_end_is_asked_in_the_words_of_aiokafka(topics: list[Any]) -> None:
    assert ManyOffsetsRequest(topics).encode() == OffsetRequest_v3(-1, 1, topics).encode()


def test_where_logs_end_is_understood_as_aiokafka_would() -> None:
    gone = 3
    topics = [
        ("hifi.stream.s", [(0, 0, -1, 17), (1, gone, -1, -1)]),
        ("hifi.stream.straße", [(5, 0, 1_700, NO_END)]),
        ("hifi.stream.none", []),
    ]
    for later in (17, 18, 17):
        topics[0][1][0] = (0, 0, -1, later)
        answer = OffsetAnswer.decode(BytesIO(OffsetResponse_v3(0, topics).encode()))
        assert answer.offsets == {
            KafkaPartition("hifi.stream.s", 0): later,
            KafkaPartition("hifi.stream.straße", 5): NO_END,
        }
        assert answer.errors == {KafkaPartition("hifi.stream.s", 1): gone}
