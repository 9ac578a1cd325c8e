"""Asks the leaders of many Kafka partitions for the ends of their logs, and for ranges of them.

A consumer is designed to follow a few topics: it asks for their metadata, and keeps positions. A
process that looks at hundreds of topics several times a second, and reads other ranges each time,
needs one plain request to each broker. An error in one Kafka partition does not affect the others.
"""

import asyncio
import math
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple, Self

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest_v3
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy

from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka.clients import new_client, start_client

_LATEST, _EARLIEST = -1, -2
# The leader has changed or is not known yet, so ask again for the metadata.
_MOVED = (NotLeaderForPartitionError, LeaderNotAvailableError, UnknownTopicOrPartitionError)
_ASK_AGAIN_S = 1.0
# Added Kafka partitions are read within a minute (docs/kafka.md).
_METADATA_AGE_MS = 60_000
# A fetch of megabytes may take long.
_ANSWER_S = 40.0
# How much one Kafka partition may add to an answer; a single larger record comes whole.
_PARTITION_BYTES_MAX = 2 * 1_048_576
# A whole answer is in memory at once, with the events made from it.
ANSWER_BYTES_MAX = 8 * 1_048_576
# How much of an answer to unpack, divided evenly among the requested partitions: similar events
# unpack to a hundred times their packed size. The rest is requested again.
_UNPACKED_BYTES_MAX = 32 * 1_048_576
# The size of a record besides its value.
_RECORD_BYTES = 500

# The format of a request and its answer. A general codec, which handles each number separately,
# takes four times as long.
_COUNT, _NAME, _HEAD = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">ibi")
_ASKED, _FOUND = struct.Struct(">iq"), struct.Struct(">ihqq")
_NO_REPLICA = -1
# How many answers are cached at most: about topics, and from brokers.
_TOPICS_MAX, _ANSWERS_MAX = 4_096, 16


class FetchAnswer(NamedTuple):
    """A fetch's answer for one Kafka partition: records and the offset after them, or an error."""

    records: Sequence[Any] = ()
    reached: int = 0
    error: KafkaError | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the requested offset no longer exists, or does not exist yet."""
        return isinstance(self.error, OffsetOutOfRangeError)

    @property
    def is_moved(self) -> bool:
        """Whether another broker leads the Kafka partition now, or soon will."""
        return isinstance(self.error, NotLeaderForPartitionError | LeaderNotAvailableError)


class LogClient:
    """One process's connections to the leaders of the Kafka partitions it asks for."""

    def __init__(self, bootstrap_servers: str, *, answer_within_s: float = _ANSWER_S) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client = new_client(
            bootstrap_servers,
            client_id="hifi-log",
            metadata_max_age_ms=_METADATA_AGE_MS,
            request_timeout_ms=round(1000 * answer_within_s),
        )
        self._topics: set[str] = set()
        self._partitions: dict[str, list[KafkaPartition]] = {}
        # When it last asked for the leaders.
        self._asked_s = -math.inf
        self._told_count = 0
        # The last request for ends.
        self._last_look: _Look | None = None
        self._client.cluster.add_listener(self._leaders_told)

    async def __aenter__(self) -> Self:
        await start_client(self._client, self._bootstrap_servers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    def _leaders_told(self, _: object) -> None:
        self._told_count += 1

    @property
    def told_count(self) -> int:
        """The number of updates of leaders; while it stays the same, so do the leaders."""
        return self._told_count

    async def follow(self, topics: Collection[str]) -> None:
        """Keep the metadata of these topics, and of no others."""
        if self._topics != set(topics):
            self._topics = set(topics)
            self._partitions.clear()
            await self._client.set_topics(self._topics)

    async def ask_leaders(self, topics: Collection[str]) -> bool:
        """Ask for the current leaders of these topics; return whether a broker answered."""
        await self.follow(topics)
        return bool(await self._client.force_metadata_update())

    def leaders(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the known leaders of these Kafka partitions."""
        # The client uses only the two fields that our type has, too.
        nodes = {where: self._client.cluster.leader_for_partition(where) for where in places}
        return {where: node for where, node in nodes.items() if node is not None and node >= 0}

    def partitions(self, topic: str) -> list[KafkaPartition]:
        numbers = self._client.cluster.partitions_for_topic(topic) or set()
        if len(known := self._partitions.get(topic, [])) != len(numbers):
            known = [KafkaPartition(topic, number) for number in sorted(numbers)]
            self._partitions[topic] = known
        return known

    async def ends(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the offsets after the last committed records; absent while no broker answers.

        Another call with the same tuple reuses the requests.
        """
        if not isinstance(places, tuple):
            return await self._offsets(dict.fromkeys(places, _LATEST))
        look = self._last_look
        if look is None or look.places is not places or look.told_count != self.told_count:
            look = self._last_look = self._look(dict.fromkeys(places, _LATEST), places)
        return await self._found(look)

    async def starts(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the first offsets that still exist."""
        return await self._offsets(dict.fromkeys(places, _EARLIEST))

    async def offsets_at(
        self, places: Collection[KafkaPartition], at_ms: int
    ) -> dict[KafkaPartition, int]:
        """Return the first offsets not older than a time; the end if all records are older.

        An offset is absent while no broker answers, even if the end is known: a reader that
        continued at the end would skip records.
        """
        known = await self._offsets(dict.fromkeys(places, at_ms))
        if late := [where for where, offset in known.items() if offset < 0]:
            ends = await self.ends(late)
            known = {key: ends.get(key, at) for key, at in known.items() if at >= 0 or key in ends}
        return known

    async def first_at(
        self, times_ms: Mapping[KafkaPartition, int]
    ) -> dict[KafkaPartition, int | None]:
        """Return the first offsets not older than a time (None if all are older), like `ends`."""
        firsts = await self._offsets(times_ms)
        return {where: None if offset < 0 else offset for where, offset in firsts.items()}

    async def _offsets(self, times_ms: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, int]:
        return await self._found(self._look(times_ms, times_ms))

    def _look(
        self, times_ms: Mapping[KafkaPartition, int], asked: Collection[KafkaPartition]
    ) -> "_Look":
        by_node = _by_node(self.leaders(times_ms))
        requests = {
            node: ManyOffsetsRequest(
                _by_topic((where, (where.partition, times_ms[where])) for where in places)
            )
            for node, places in by_node.items()
        }
        is_moved = sum(map(len, by_node.values())) < len(times_ms)
        return _Look(asked, self.told_count, requests, is_moved)

    async def _found(self, look: "_Look") -> dict[KafkaPartition, int]:
        is_moved, sent = look.is_moved, [self._client.send(*pair) for pair in look.requests.items()]
        offsets: dict[KafkaPartition, int] = {}
        for answer in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, KafkaError | OSError):
                    raise answer
                is_moved = True
                continue
            offsets |= answer.offsets
            is_moved |= any(issubclass(for_code(code), _MOVED) for code in answer.errors.values())
        if is_moved and time.monotonic() > self._asked_s + _ASK_AGAIN_S:
            self._asked_s = time.monotonic()
            self._client.force_metadata_update()
        return offsets

    async def ask(self, request: Any) -> Any:
        """Send a request to any broker; return the answer."""
        return await self._client.send(self._client.get_random_node(), request)

    async def fetch(
        self,
        node: int,
        position: Position,
        *,
        wait_ms: int,
        bytes_max: int = ANSWER_BYTES_MAX,
        connection: int = 0,
    ) -> dict[KafkaPartition, FetchAnswer]:
        """Ask a broker for the next records; it waits up to `wait_ms` while there are none.

        Meanwhile the broker answers nothing else on the same connection.
        """
        topics = _by_topic(
            (where, (where.partition, offset, min(_PARTITION_BYTES_MAX, bytes_max)))
            for where, offset in position.items()
        )
        request = FetchRequest(wait_ms, 1, bytes_max, READ_COMMITTED, topics)
        answer = await self._client.send(node, request, group=connection)
        answers = {}
        size_max = max(1_048_576, _UNPACKED_BYTES_MAX // len(position))
        for topic, parts in answer.topics:
            for number, code, _, _, *others in parts:
                where = KafkaPartition(topic, number)
                if code:
                    answers[where] = FetchAnswer(error=for_code(code)(f"{topic}, {number}"))
                    continue
                aborted = next((each for each in others[:-1] if isinstance(each, list)), [])
                raw = others[-1] or b""
                answers[where] = _opened(where, raw, position[where], aborted, size_max)
        return answers


def rows_by_topic(raw: bytes, at: int, *, row_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Split an answer, from its number of topics on, into each topic's name and packed rows."""
    (topic_count,) = _COUNT.unpack_from(raw, at)
    at += _COUNT.size
    for _ in range(topic_count):
        (size,) = _NAME.unpack_from(raw, at)
        at += _NAME.size + size
        topic = raw[at - size : at].decode()
        (count,) = _COUNT.unpack_from(raw, at)
        at += _COUNT.size
        end = at + count * row_bytes
        yield topic, raw[at:end]
        at = end


class OffsetAnswer(NamedTuple):
    """A broker's answer about the requested logs."""

    offsets: Mapping[KafkaPartition, int]
    # Kafka's error codes for logs without an offset.
    errors: Mapping[KafkaPartition, int]

    @classmethod
    def decode(cls, answer: BytesIO) -> "OffsetAnswer":
        # The topics come after the time for which the broker asks us to wait.
        return _opened_answer(answer.read()[_COUNT.size :])


@lru_cache(_ANSWERS_MAX)
def _opened_answer(raw: bytes) -> OffsetAnswer:
    """Decode a broker's answer; without new records it equals the previous one."""
    offsets: dict[KafkaPartition, int] = {}
    errors: dict[KafkaPartition, int] = {}
    for topic, rows in rows_by_topic(raw, 0, row_bytes=_FOUND.size):
        part = _opened_offsets(topic, rows)
        offsets |= part.offsets
        errors |= part.errors
    return OffsetAnswer(offsets, errors)


@lru_cache(_TOPICS_MAX)
def _opened_offsets(topic: str, raw: bytes) -> OffsetAnswer:
    """Decode a topic's part of an answer; for most topics it equals the previous one."""
    unpacked = _FOUND.iter_unpack(raw)
    rows = [(KafkaPartition(topic, number), code, offset) for number, code, _, offset in unpacked]
    return OffsetAnswer(
        {where: offset for where, code, offset in rows if not code},
        {where: code for where, code, _ in rows if code},
    )


class ManyOffsetsRequest(OffsetRequest_v3):  # type: ignore[misc]
    """Asks for offsets by times in milliseconds, or by Kafka's codes for earliest and latest."""

    RESPONSE_TYPE = OffsetAnswer

    def __init__(self, topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> None:
        packed = [_HEAD.pack(_NO_REPLICA, READ_COMMITTED, len(topics))]
        for topic, asked in topics:
            name = topic.encode()
            packed += [_NAME.pack(len(name)), name, _COUNT.pack(len(asked))]
            packed += [_ASKED.pack(*each) for each in asked]
        self._packed = b"".join(packed)

    def prepare(self, _: Any) -> Self:
        """Keep this version of the request, which every broker knows."""
        return self

    def encode(self) -> bytes:
        return self._packed


class _Look(NamedTuple):
    """The requests to each broker, valid while the leaders stay the same."""

    places: Collection[KafkaPartition]
    told_count: int
    requests: Mapping[int, ManyOffsetsRequest]
    is_moved: bool


def _by_node(leaders: Mapping[KafkaPartition, int]) -> dict[int, list[KafkaPartition]]:
    nodes: dict[int, list[KafkaPartition]] = {}
    for where, node in leaders.items():
        nodes.setdefault(node, []).append(where)
    return nodes


def _by_topic(asked: Any) -> list[tuple[str, list[Any]]]:
    topics: dict[str, list[Any]] = {}
    for where, what in asked:
        topics.setdefault(where.topic, []).append(what)
    return list(topics.items())


def _opened(
    where: KafkaPartition, raw: bytes, offset: int, aborted: Any, size_max: int
) -> FetchAnswer:
    try:
        try:
            return _read(where, MemoryRecords(raw), offset, list(aborted), size_max)
        except UnicodeDecodeError:
            # Programs other than the gateway may use any bytes as names of headers.
            return _read(where, _PatientRecords(raw), offset, list(aborted), size_max)
    except KafkaError as error:
        return FetchAnswer(error=error)
    except Exception as error:  # noqa: BLE001 - decoders of several libraries, of one log alone
        return FetchAnswer(error=CorruptRecordException(repr(error)))


def _read(
    where: KafkaPartition, batches: Any, offset: int, aborted: Any, size_max: int
) -> FetchAnswer:
    place = TopicPartition(*where)
    unpacked = _Records(place, batches, aborted, offset, None, None, True, READ_COMMITTED)
    records: list[Any] = []
    for record in unpacked:
        records.append(record)
        size_max -= len(record.value or b"") + _RECORD_BYTES
        if size_max <= 0:
            break
    return FetchAnswer(records, unpacked.next_fetch_offset)


class _Records(PartitionRecords):  # type: ignore[misc]
    """Leaves out records of aborted transactions, and returns the others unchanged."""

    def _consumer_record(self, _: TopicPartition, record: Any) -> Any:
        return record


class _PatientRecords(_MemoryRecordsPy):  # type: ignore[misc]
    """Reads header names that are not valid UTF-8 with replacements; it is ten times slower."""

    def next_batch(self) -> Any:
        raw, batch = self._next_slice, super().next_batch()
        return _PatientBatch(raw) if batch.magic >= 2 else batch  # noqa: PLR2004 - older have none


class _PatientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    _buffer: Any

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _PatientBytes(self._buffer)


class _PatientBytes(bytearray):
    def __getitem__(self, at: Any) -> Any:
        part = super().__getitem__(at)
        return _PatientBytes(part) if isinstance(at, slice) else part

    def decode(self, encoding: str = "utf-8", _: str = "") -> str:
        return super().decode(encoding, "replace")
