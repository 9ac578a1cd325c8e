"""A process reads marks of resent events once, even in parts, and drops old ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from gateway.control.stores.redrive import RedrivenMarks
from shared.event.record import KafkaPartition, Origin, Ranges, RecordIn
from shared.event.topics import REDRIVEN
from shared.retry.dead_letter import Place
from shared.runtime.setup_error import KafkaUnavailableError

MARKS = KafkaPartition(REDRIVEN, 0)
NEVER_S = float("inf")


class ScriptedReader:
    """Holds marks, counts the records that are read, and returns one record at a time."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.read_count = 0

    async def spans(self, topics: Iterable[str]) -> dict[KafkaPartition, tuple[int, int]]:
        assert list(topics) == [REDRIVEN]
        return {MARKS: (0, len(self.keys))}

    async def range(self, ranges: Ranges) -> AsyncIterator[list[RecordIn]]:
        begin, end = ranges[MARKS]
        for offset in range(begin, end):
            self.read_count += 1
            key = self.keys[offset].encode()
            yield [RecordIn(Origin(REDRIVEN, 0, offset), 0, key, b"{}", ())]


def read(
    marks: RedrivenMarks,
    reader: Any,
    *,
    letters_from: dict[int, int] | None = None,
    until_s: float = NEVER_S,
) -> None:
    asyncio.run(marks.read(reader, letters_from or {}, until_s=until_s))


def test_each_mark_is_read_once_whoever_asks() -> None:
    marks, reader = RedrivenMarks(), ScriptedReader("0:7", "1:40000", "no place")
    read(marks, reader)
    read(marks, reader)
    assert reader.read_count == 3
    reader.keys.append("0:8")
    read(marks, reader)
    assert reader.read_count == 4
    places = [Place(0, 6), Place(0, 7), Place(0, 8), Place(0, 9), Place(1, 40_000), Place(1, 7)]
    assert [one for one in places if one in marks] == [places[1], places[2], places[4]]


def test_a_reading_that_takes_too_long_says_so_and_goes_on_there_the_next_time() -> None:
    marks, reader = RedrivenMarks(), ScriptedReader("0:1", "0:2", "0:3")
    with pytest.raises(KafkaUnavailableError, match="Ask again"):
        read(marks, reader, until_s=time.monotonic() - 1)
    assert reader.read_count == 1
    read(marks, reader)
    assert reader.read_count == 3
    assert all(Place(0, n) in marks for n in (1, 2, 3))


def test_what_kafka_has_deleted_is_forgotten() -> None:
    marks, reader = RedrivenMarks(), ScriptedReader("0:1", "0:999999")
    read(marks, reader, letters_from={0: 999_000})
    assert (Place(0, 1) in marks, Place(0, 999_999) in marks) == (False, True)


def test_a_topic_that_was_made_anew_is_read_anew() -> None:
    marks = RedrivenMarks()
    read(marks, ScriptedReader("0:1", "0:2"))
    read(marks, ScriptedReader("0:3"))
    assert [n for n in (1, 2, 3) if Place(0, n) in marks] == [3]
