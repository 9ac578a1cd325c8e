"""The index of events: entries from rows of the ledger, its bounds, and recovery after a crash."""

import random
from pathlib import Path

import pytest

from observe.index.entries import (
    ENTRY_BYTES,
    entries_of,
    entries_of_ids,
    hash_of_id,
    hash_of_key,
    stretch_of,
)
from observe.index.store import EventIndex, Stretches
from shared.event.topics import stream_topic
from shared.proof.acked import AckedRow, AckedSlice, key_hash

TOPIC, OTHER = stream_topic("orders"), stream_topic("payments")
MINUTE = 1_699_999_980_000
OWNERS = {"orders": "one", "payments": "two"}


def an_index(folder: Path, *, bytes_max: int = 1 << 30) -> EventIndex:
    return EventIndex(folder, bytes_max, lambda stream: OWNERS.get(stream, ""))


def found(index: EventIndex, topic: str, hashed: bytes) -> Stretches:
    return index.look(topic, hashed)[0]


def known(index: EventIndex, topic: str = TOPIC) -> list[tuple[int, int, int]]:
    return sorted(index.look(topic, hash_of_id(topic, "nobody's"))[1])


def fill(index: EventIndex, first: int, count: int, *, topic: str = TOPIC) -> None:
    index.add(topic, many(first, count, topic=topic), [(0, first, first + count)])


def many(first: int, count: int, *, topic: str = TOPIC) -> bytes:
    return entries_of_ids(topic, 0, first, [f"e{first + n}" for n in range(count)])


def a_row(*slices: tuple[int, int], keys: tuple[bytes, ...] = ()) -> bytes:
    ids = tuple(f"e{first + n}" for first, count in slices for n in range(count))
    acked = tuple(AckedSlice(first, ((count, MINUTE),), MINUTE) for first, count in slices)
    hashes = tuple(map(key_hash, keys))
    return AckedRow(TOPIC, 3, acked, ids, key_hashes=hashes).to_bytes()


def test_a_row_of_the_ledger_is_an_entry_for_each_event_and_one_for_each_key(
    tmp_path: Path,
) -> None:
    topic, entries, stretches = entries_of(a_row((100, 2), (110, 3), keys=(b"ann", b"bob")))
    assert (topic, len(entries)) == (TOPIC, 7 * ENTRY_BYTES)
    index = an_index(tmp_path)
    index.add(topic, entries, stretches)
    assert known(index) == [(3, 100, 102), (3, 110, 113)]
    assert found(index, TOPIC, hash_of_id(TOPIC, "e101")) == ((3, 101, 102),)
    assert found(index, TOPIC, hash_of_id(TOPIC, "e112")) == ((3, 112, 113),)
    # A key may occur anywhere in the row, and in events that others wrote in between.
    assert found(index, TOPIC, hash_of_key(TOPIC, "bob")) == ((3, 100, 116),)
    assert found(index, TOPIC, hash_of_key(TOPIC, "eve")) == ()


def test_a_key_of_a_row_with_wide_gaps_has_several_entries() -> None:
    _, entries, _ = entries_of(a_row((0, 1), (99_999, 1), keys=(b"ann",)))
    spans = sorted(
        stretch_of(entries[at : at + ENTRY_BYTES])
        for at in range(2 * ENTRY_BYTES, len(entries), ENTRY_BYTES)
    )
    assert [first for _, first, _ in spans] == [0, 32_768, 65_536, 98_304]
    assert spans[-1][2] >= 100_000


@pytest.mark.parametrize("place", [(0, 0), (65_535, (1 << 44) - 1), (7, 123_456_789_012)])
def test_a_place_is_what_was_entered(place: tuple[int, int]) -> None:
    partition, offset = place
    entry = entries_of_ids(TOPIC, partition, offset, ["a"])
    assert stretch_of(entry) == (partition, offset, offset + 1)


def test_what_is_in_files_is_found_after_a_restart_and_what_is_not_is_read_again(
    tmp_path: Path,
) -> None:
    index = an_index(tmp_path)
    for first in range(0, 300_000, 50_000):
        index.add(TOPIC, many(first, 50_000))
        if index.is_full:
            index.seal({0: first + 50_000})
    assert index.position == {0: 300_000}
    index.add(TOPIC, many(300_000, 10))
    again = an_index(tmp_path)
    assert again.position == {0: 300_000}
    for number in (0, 131_072, 299_999):
        hashed = hash_of_id(TOPIC, f"e{number}")
        assert found(again, TOPIC, hashed) == ((0, number, number + 1),)
    assert found(index, TOPIC, hash_of_id(TOPIC, "e300009"))
    assert found(again, TOPIC, hash_of_id(TOPIC, "e300009")) == ()
    # Events that are read again are found only once.
    again.add(TOPIC, many(299_990, 20))
    again.seal({0: 300_010})
    assert found(again, TOPIC, hash_of_id(TOPIC, "e299999")) == ((0, 299_999, 300_000),)


def test_small_files_become_larger_ones(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    for nth in range(64):
        index.add(TOPIC, many(100 * nth, 100))
        index.seal({0: nth})
    assert len(list(tmp_path.glob("*/*/*"))) < 16
    assert index.byte_count == 6_400 * ENTRY_BYTES
    for number in random.Random(7).sample(range(6_400), 50):
        hashed = hash_of_id(TOPIC, f"e{number}")
        assert found(index, TOPIC, hashed) == ((0, number, number + 1),)


@pytest.mark.simulation
def test_whoever_fills_the_index_loses_the_oldest_of_their_own(tmp_path: Path) -> None:
    index = an_index(tmp_path, bytes_max=500_000 * ENTRY_BYTES)
    index.add(OTHER, many(0, 1_000, topic=OTHER))
    for first in range(0, 1_000_000, 125_000):
        index.add(TOPIC, many(first, 125_000))
        index.seal({0: first})
        assert index.byte_count <= 500_000 * ENTRY_BYTES
    for number in range(1_000):
        assert found(index, OTHER, hash_of_id(OTHER, f"e{number}"))
    assert found(index, TOPIC, hash_of_id(TOPIC, "e0")) == ()
    assert found(index, TOPIC, hash_of_id(TOPIC, "e999999"))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 8_100_000


def test_nothing_of_one_stream_is_found_in_another(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    index.add(TOPIC, many(0, 10))
    index.add(OTHER, many(50, 10, topic=OTHER))
    assert found(index, OTHER, hash_of_id(OTHER, "e5")) == ()
    # The other topic's hash does not find it, either.
    assert found(index, OTHER, hash_of_id(TOPIC, "e5")) == ()
    assert found(index, OTHER, hash_of_id(OTHER, "e55")) == ((0, 55, 56),)


def test_what_came_before_its_stream_was_heard_of_is_found_nevertheless(tmp_path: Path) -> None:
    owners: dict[str, str] = {}
    index = EventIndex(tmp_path, 1 << 30, lambda stream: owners.get(stream, ""))
    index.add(TOPIC, many(0, 10))
    index.seal({0: 1})
    owners["orders"] = "one"
    assert found(index, TOPIC, hash_of_id(TOPIC, "e5")) == ((0, 5, 6),)


def test_one_id_in_a_million_events_is_found_by_its_newest(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    for first in range(0, 400_000, 100_000):
        index.add(TOPIC, entries_of_ids(TOPIC, 0, first, ["same"] * 100_000))
        index.add(TOPIC, many(1_000_000 + first, 1_000))
        index.seal({0: first})
    those = found(index, TOPIC, hash_of_id(TOPIC, "same"))
    assert len(those) == 1_000
    assert those[0] == (0, 399_999, 400_000)
    assert found(index, TOPIC, hash_of_id(TOPIC, "e1000999")) == ((0, 1_000_999, 1_001_000),)


def test_a_file_that_its_writer_did_not_end_is_no_harm(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    index.add(TOPIC, many(0, 1_000))
    index.seal({0: 10})
    (whole,) = (path for path in tmp_path.glob("*/*/*") if path.name.isdecimal())
    (whole.parent / "000000000002").write_bytes(b"\1" * 23)
    (whole.parent / "000000000003").write_bytes(b"")
    (whole.parent / "000000000004.new").write_bytes(b"\1" * 16)
    (tmp_path / "index-1" / "position").write_text("{torn")
    again = an_index(tmp_path)
    assert sorted(tmp_path.glob("*/*/*")) == [whole, whole.with_suffix(".known")]
    # The index's position is unknown: everything is read again.
    assert again.position == {}
    assert found(again, TOPIC, hash_of_id(TOPIC, "e999")) == ((0, 999, 1_000),)


def test_many_tenants_who_send_little_are_not_many_files(tmp_path: Path) -> None:
    index = EventIndex(tmp_path, 1 << 30, lambda stream: stream)
    for nth in range(1_000):
        index.add(stream_topic(f"s{nth}"), many(0, 200, topic=stream_topic(f"s{nth}")))
    # 200,000 entries would fill a file of one tenant.
    assert not index.is_full
    index.add(stream_topic("s0"), many(0, 60_000, topic=stream_topic("s0")))
    assert index.is_full


def test_of_which_events_all_ids_are_known_survives_a_restart_and_a_merge(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    for first in range(0, 500, 100):
        fill(index, first, 100)
        index.seal({0: first})
    fill(index, 500, 100)
    fill(index, 700, 100, topic=OTHER)
    assert known(index) == [(0, 0, 600)]
    assert known(index, OTHER) == [(0, 700, 800)]
    # Events that were in no file are read again.
    assert known(an_index(tmp_path)) == [(0, 0, 500)]


def test_what_was_left_out_is_not_known_any_more(tmp_path: Path) -> None:
    index = an_index(tmp_path, bytes_max=300_000 * ENTRY_BYTES)
    fill(index, 0, 1_000, topic=OTHER)
    for first in range(0, 600_000, 150_000):
        fill(index, first, 150_000)
        index.seal({0: first})
    ((partition, first, end),) = known(index)
    assert (partition, end) == (0, 600_000)
    assert first > 0
    # Exactly the ids that are found count as known.
    assert found(index, TOPIC, hash_of_id(TOPIC, f"e{first - 1}")) == ()
    assert found(index, TOPIC, hash_of_id(TOPIC, f"e{first}"))
    assert known(index, OTHER) == [(0, 0, 1_000)]


def test_nothing_is_known_of_a_file_that_is_gone_or_damaged(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    fill(index, 0, 200_000)
    index.seal({0: 1})
    fill(index, 200_000, 10)
    index.seal({0: 2})
    older, newer = sorted(path for path in tmp_path.glob("*/*/*") if path.name.isdecimal())
    newer.unlink()
    assert known(index) == [(0, 0, 200_000)]
    assert found(index, TOPIC, hash_of_id(TOPIC, "e200001")) == ()
    entries = bytearray(older.read_bytes())
    entries[len(entries) // 2] ^= 1
    older.write_bytes(entries)
    again = an_index(tmp_path)
    assert (known(again), again.byte_count, list(tmp_path.glob("*/*/*"))) == ([], 0, [])


def test_of_very_many_stretches_the_longest_are_known(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    index.add(TOPIC, b"", [(0, 3 * n, 3 * n + 1) for n in range(5_000)])
    index.add(TOPIC, b"", [(1, 0, 70)])
    told = known(index)
    assert len(told) == 1_000
    assert (1, 0, 70) in told


def test_of_an_id_that_came_too_often_nothing_is_known(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    for first in range(0, 400_000, 200_000):
        index.add(TOPIC, entries_of_ids(TOPIC, 0, first, ["same"] * 200_000))
        index.add(TOPIC, b"", [(0, first, first + 200_000)])
        index.seal({0: first})
    assert index.look(TOPIC, hash_of_id(TOPIC, "same"))[1] == ()


def test_an_index_of_another_ledger_is_forgotten(tmp_path: Path) -> None:
    index = an_index(tmp_path)
    fill(index, 0, 100)
    index.seal({0: 7})
    fill(index, 100, 100)
    index.forget()
    assert (known(index), index.position, index.byte_count) == ([], {}, 0)
    assert list(tmp_path.glob("*/*/*")) == []
