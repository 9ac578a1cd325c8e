"""A Kafka partition with twice its share is named, with the keys that cause it."""

import random
from collections import Counter

import pytest

from shared.event.spread import (
    EVENTS_MIN,
    HotKeys,
    Spread,
    examine_count,
    examine_spread,
    frequent,
    hottest,
    key_text,
)
from shared.event.times import MINUTE_MS


@pytest.mark.parametrize(
    ("counts", "hot"),
    [
        ([], None),
        ([9_000], None),
        ([EVENTS_MIN - 1, 0], None),
        ([2_000, 2_000, 2_000, 2_000], None),
        ([4_000, 2_000, 1_000, 1_000], None),
        ([1_000, 4_100, 1_400, 1_500], 1),
        ([5_000, 0], None),
        ([0, 0, 5_000], 2),
    ],
)
def test_the_one_with_more_than_twice_its_share_is_hot(counts: list[int], hot: int | None) -> None:
    assert hottest(counts) == hot


def test_it_says_how_hot_it_is_and_what_to_do() -> None:
    counts, keys = [100, 100, 9_600, 200], [("u7", 0.6), (key_text(b"\xff" * 99), 0.11)]
    (found,) = examine_spread("orders", counts, keys, is_by_shards=False)
    assert (found.subject, found.grade) == ("spread of orders", "note")
    assert found.says.startswith(
        "Kafka partition 2 got 96% of the last hour's events, 3.8 times its share; the most"
        " frequent keys of its newest events are 'u7' (60%), "
    )
    assert len(found.says) < 250
    assert "choose a key with more values" in found.mend
    (shard,) = examine_spread("orders", counts, keys, is_by_shards=True)
    assert "that shard is large" in shard.mend
    (none,) = examine_spread("orders", counts, [], is_by_shards=False)
    assert "no key stands out" in none.mend
    assert examine_spread("orders", [500, 500], keys, is_by_shards=False) == []


def test_the_sketch_has_every_frequent_key_in_little_room() -> None:
    dice, sketch, truth = random.Random(5), HotKeys(room=20), Counter[str]()
    for _ in range(20_000):
        roll = dice.random()
        hot = "a" if roll < 0.3 else "b" if roll < 0.45 else "c" if roll < 0.48 else None
        key = hot or f"k{dice.randrange(100_000)}"
        truth[key] += 1
        sketch.add(key)
    top = sketch.top()
    assert [key for key, _ in top] == ["a", "b"]
    for key, part in top:
        assert 0 <= part - truth[key] / 20_000 <= 1 / 20
    assert len(sketch._counts) == 20
    assert HotKeys().top() == []


def test_there_are_to_be_partitions_for_what_comes_and_for_each_shard() -> None:
    assert examine_count("s", 4, bytes_per_s=39e6, shards=4) == []
    (more,) = examine_count("s", 1, bytes_per_s=35e6, shards=1)
    assert more.says.startswith("35.0 MB/s came in the last hour, in 1 Kafka partition: each")
    assert "--partitions 4`" in more.mend
    (idle,) = examine_count("s", 2, bytes_per_s=0.0, shards=3)
    assert idle.says == "a destination has 3 shards, but the stream has 2 Kafka partitions"


def test_a_long_key_is_told_by_its_beginning_and_is_no_other() -> None:
    assert key_text(b"user-7") == "user-7"
    one, other = (key_text(b"u" * 200 + end) for end in (b"1", b"2"))
    assert one[:60] == other[:60] == "u" * 60
    assert one != other
    assert len(one) < 80


def test_of_a_row_only_keys_are_told_that_have_a_good_part_of_it() -> None:
    counts = Counter({b"a": 300, b"b": 57, b"c": 55, **{b"k%d" % n: 1 for n in range(400)}})
    assert frequent(counts, 900) == (("a", 300), ("b", 57))
    assert frequent(Counter({b"%d" % n: 1 for n in range(10)}), 10) == tuple(
        (str(n), 1) for n in range(8)
    )
    assert frequent({}, 900) == ()


def test_hot_keys_and_partitions_are_found_from_rows_of_many_gateways_in_little_room() -> None:
    """Each gateway reports the frequent keys of each second; the findings match the truth."""
    dice, spread, truth = random.Random(7), Spread(), Counter[bytes]()
    for second in range(50):
        for partition in range(4):
            # Two in three events of the third partition have one key; all other events have a key
            # each.
            keys = [
                b"hot" if partition == 2 and dice.random() < 0.66 else b"%d" % dice.randrange(10**6)
                for _ in range(600 if partition == 2 else 100)
            ]
            truth.update(keys)
            row = Counter(keys)
            spread.take(partition, len(keys), frequent(row, len(keys)), now_ms=second * 1_000)
    found = spread.view(4, now_ms=50_000)
    assert found is not None
    assert (found.fullest, found.is_hot) == (2, True)
    assert found.part == pytest.approx(6 / 9)
    assert found.times == pytest.approx(4 * 6 / 9)
    ((key, part),) = found.keys
    assert key == "hot"
    assert part == pytest.approx(truth[b"hot"] / 45_000, rel=0.02)
    assert len(spread._keys._counts) <= 64


def test_what_was_hot_is_forgotten_and_an_idle_stream_says_nothing() -> None:
    spread = Spread()
    spread.take(0, 8_000, [("old", 8_000)], now_ms=0)
    assert spread.view(2, now_ms=0) is not None
    later = 5 * MINUTE_MS
    spread.take(0, 4_000, [], now_ms=later)
    spread.take(1, 4_250, [], now_ms=later)
    found = spread.view(2, now_ms=later)
    assert found is not None
    assert (found.is_hot, found.keys) == (False, ())
    assert found.part == pytest.approx(0.5)
    # A clock that steps back has no effect.
    assert spread.view(2, now_ms=0) == found
    assert spread.view(2, now_ms=later + 60 * MINUTE_MS) is None
    assert Spread().view(4, now_ms=0) is None


def test_no_flood_of_keys_pushes_out_one_that_is_hot() -> None:
    spread = Spread()
    for nth in range(2_000):
        flood = [(f"k{nth}-{at}", 7) for at in range(7)]
        spread.take(nth % 4, 100, [("hot", 30), *flood], now_ms=nth)
    found = spread.view(4, now_ms=2_000)
    assert found is not None
    assert [key for key, _ in found.keys] == ["hot"]
    assert found.keys[0][1] == pytest.approx(0.3, abs=0.02)
