"""A Kafka partition with twice its share is named, with the keys that make it so."""

import random
from collections import Counter

import pytest

from shared.event.spread import EVENTS_MIN, HotKeys, examine_count, examine_spread, hottest


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
    counts, keys = [100, 100, 9_600, 200], [(b"u7", 0.6), (b"\xff" * 99, 0.11)]
    (found,) = examine_spread("orders", counts, keys, is_by_shards=False)
    assert (found.subject, found.grade) == ("spread of orders", "note")
    assert found.says.startswith(
        "Kafka partition 2 got 96% of the last hour's events, 3.8 times its share; of its newest"
        " most come with the keys 'u7' (60%), "
    )
    assert len(found.says) < 250
    assert "choose a key with more values" in found.mend
    (shard,) = examine_spread("orders", counts, keys, is_by_shards=True)
    assert "that shard is large" in shard.mend
    (none,) = examine_spread("orders", counts, [], is_by_shards=False)
    assert "no key stands out" in none.mend
    assert examine_spread("orders", [500, 500], keys, is_by_shards=False) == []


def test_the_sketch_has_every_frequent_key_in_little_room() -> None:
    dice, sketch, truth = random.Random(5), HotKeys(room=20), Counter[bytes]()
    for _ in range(20_000):
        roll = dice.random()
        hot = b"a" if roll < 0.3 else b"b" if roll < 0.45 else b"c" if roll < 0.48 else None
        key = hot or b"k%d" % dice.randrange(100_000)
        truth[key] += 1
        sketch.add(key)
    top = sketch.top()
    assert [key for key, _ in top] == [b"a", b"b"]
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
    assert idle.says == "a destination has 3 shards, and there are 2 Kafka partitions for them"
