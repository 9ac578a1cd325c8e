"""Ids are read from the log's leader, and a missing part of the log is skipped."""

import asyncio
import time
from collections.abc import Collection, Sequence

import pytest

from observe.audit.ids import log_reader
from observe.audit.ids.log_ids import LogIds
from observe.audit.ids.log_reader import ids_in
from shared.event.envelope import EVENT_ID, event_headers
from shared.event.record import Headers, KafkaPartition, Origin, RecordIn
from shared.proof.intervals import Offsets
from shared.runtime.kafka.log_client import FetchAnswer
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.delivery.memory_log import MemoryLog

HERE, THERE = KafkaPartition("hifi.stream.orders", 0), KafkaPartition("hifi.stream.orders", 1)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    monkeypatch.setattr(log_reader, "_AGAIN_S", 0.01)
    monkeypatch.setattr(log_reader, "_WAIT_MS", 10)
    kept = MemoryLog()
    kept.make(HERE.topic, 2)
    return kept


def write(log: MemoryLog, where: KafkaPartition, *offsets: int, headers: Headers = ()) -> None:
    for offset in offsets:
        named = event_headers(event_id=f"e{offset}", event_time_ms=1, accepted_at_ms=1)
        log.write([RecordIn(Origin(*where, offset), 1, None, b"", headers or named)])


def offsets_of(found: LogIds, where: KafkaPartition) -> list[int]:
    return list(found.of(where, 0, 10**9)[0].to_pylist())


def ids_of(found: LogIds, where: KafkaPartition) -> list[bytes]:
    return list(found.of(where, 0, 10**9)[1].to_pylist())


def read(log: MemoryLog, *wanted: tuple[KafkaPartition, Sequence[tuple[int, int]]]) -> LogIds:
    return asyncio.run(ids_in(log, {where: Offsets.of(spans) for where, spans in wanted}))


def test_what_lies_far_apart_is_jumped_to_and_what_is_near_is_read_over(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, HERE, *range(20), *range(9_000, 9_010))
    write(log, THERE, *range(5))
    wanted = (HERE, [(2, 4), (6, 8), (9_001, 9_003)]), (THERE, [(0, 5)])
    # One answer contains all of it.
    found = read(log, *wanted)
    assert {2, 3, 6, 7, 9_001, 9_002} <= set(offsets_of(found, HERE))
    assert max(offsets_of(found, HERE)) == 9_002
    assert ids_of(found, THERE) == [b"e0", b"e1", b"e2", b"e3", b"e4"]
    # An answer has ten records.
    whole = MemoryLog._answer

    def some(self: MemoryLog, where: KafkaPartition, at: int) -> FetchAnswer:
        records = whole(self, where, at).records[:10]
        return FetchAnswer(records, records[-1].offset + 1)

    monkeypatch.setattr(MemoryLog, "_answer", some)
    log.fetches.clear()
    assert offsets_of(read(log, *wanted), HERE) == [*range(2, 12), 9_001, 9_002]
    assert log.fetches == [{HERE: 2, THERE: 0}, {HERE: 9_001}]


def test_an_id_stands_in_any_header_or_is_the_place(log: MemoryLog) -> None:
    write(log, HERE, 0, headers=(("via", b"x"), (EVENT_ID, b"mine")))
    write(log, HERE, 1, headers=(("via", b"x"),))
    assert ids_of(read(log, (HERE, [(0, 2)])), HERE) == [b"mine", b"hifi.stream.orders:0:1"]


def test_nothing_is_read_where_the_log_was_deleted_or_cut(log: MemoryLog) -> None:
    write(log, HERE, *range(10))
    log.forget(HERE, 4)
    write(log, THERE, *range(3))
    found = read(log, (HERE, [(0, 2), (3, 6)]), (THERE, [(8, 9)]))
    assert offsets_of(found, HERE) == [4, 5]
    assert offsets_of(found, THERE) == []


def test_a_leader_is_waited_for_and_looked_for_again(log: MemoryLog) -> None:
    write(log, HERE, *range(3))
    log.leaderless.add(HERE)
    asked = 0

    async def ask_leaders(topics: Collection[str]) -> bool:
        nonlocal asked
        assert topics == {HERE.topic}
        asked += 1
        if asked == 3:
            log.leaderless.clear()
        return True

    log.ask_leaders = ask_leaders  # type: ignore[method-assign]
    assert offsets_of(read(log, (HERE, [(0, 3)])), HERE) == [0, 1, 2]
    assert asked == 3


def test_without_a_leader_it_ends_with_an_error(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_SILENCE_S_MAX", 0.05)
    write(log, HERE, 0)
    log.leaderless.add(HERE)
    with pytest.raises(KafkaUnavailableError, match="No records came"):
        read(log, (HERE, [(0, 1)]))


def test_a_topic_that_is_deleted_meanwhile_is_passed_by_and_others_are_read(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_SILENCE_S_MAX", 5.0)
    write(log, HERE, *range(3))
    gone = KafkaPartition("hifi.stream.gone", 0)
    begun_s = time.monotonic()
    found = read(log, (HERE, [(0, 3)]), (gone, [(0, 3)]))
    assert (offsets_of(found, HERE), offsets_of(found, gone)) == ([0, 1, 2], [])
    assert time.monotonic() - begun_s < 5


def test_a_topic_that_no_broker_has_said_anything_of_is_not_taken_for_deleted(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_SILENCE_S_MAX", 0.3)

    async def nobody_answers(topics: Collection[str]) -> bool:  # noqa: ARG001 - nobody knows them
        return False

    log.ask_leaders = nobody_answers  # type: ignore[method-assign]
    with pytest.raises(KafkaUnavailableError, match="No records came"):
        read(log, (KafkaPartition("hifi.stream.gone", 0), [(0, 1)]))
