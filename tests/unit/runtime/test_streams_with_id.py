"""The streams, among many, that have an id: an index finds them in bounded time."""

import asyncio
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from observe.index.entries import entries_of_ids, hash_of_id
from observe.index.store import EventIndex
from shared.event.places import Places
from shared.event.topics import stream_topic
from shared.runtime.kafka.lookup import streams_with_id as module
from shared.runtime.kafka.lookup.event_search import EventSearch
from shared.runtime.kafka.lookup.streams_with_id import StreamsWithId, streams_with_id


def test_an_index_says_in_which_streams_an_id_is(tmp_path: Path) -> None:
    index = EventIndex(tmp_path, 10_000_000, lambda stream: stream[0])
    for stream in ("a1", "a2", "b1"):
        ids = ["everywhere", f"only-{stream}"]
        index.add(stream_topic(stream), entries_of_ids(stream_topic(stream), 0, 7, ids))
    index.seal({0: 1})

    def places(topic: str, event_id: str) -> Places:
        return Places(*index.look(topic, hash_of_id(topic, event_id)))

    # No broker is asked.
    search = EventSearch("127.0.0.1:9", places)
    for streams, event_id, found in (
        (["a1", "a2", "b1", "c1"], "everywhere", ("a1", "a2", "b1")),
        (["a1", "c1"], "everywhere", ("a1",)),
        (["a1", "a2", "b1", "c1"], "only-b1", ("b1",)),
        (["a1", "a2", "b1", "c1"], "other", ()),
        ([], "everywhere", ()),
    ):
        told = asyncio.run(search.among(streams, event_id))
        assert told == StreamsWithId(found, len(streams)), event_id
    without = asyncio.run(EventSearch("127.0.0.1:9").among(["a1"], "everywhere"))
    assert (without.has_index, without.asked_count) == (False, 0)


def test_a_look_ends_in_time_and_asks_of_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock) / 4))
    streams = [f"s{number}" for number in range(100)]
    told = streams_with_id(lambda _, __: Places(is_behind=True), streams, "e-1")
    assert told == StreamsWithId((), 5, index_is_behind=True)
    monkeypatch.setattr(module, "_LOOK_S_MAX", -1.0)
    assert streams_with_id(lambda _, __: Places(), streams, "e-1").asked_count == 1
