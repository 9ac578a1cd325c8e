"""Each shard name is written in exactly one way and occurs once; the order is fixed."""

import json

import pytest

from shared.config.configuration import Configuration, RemovedStream, Stream
from shared.config.model import ConfigError
from shared.config.partitioning import SHARDS_MAX, Partitioning

TWO = Partitioning("/tenant", ("eu-1", "eu-2"))


def stream_of(partition_count: int, pointer: object, shards: object) -> Stream:
    partitioning = {"pointer": pointer, "shards": shards}
    return Stream.of(
        {"name": "s", "partition_count": partition_count, "partitioning": partitioning}
    )


def test_a_stream_keeps_its_shards_through_the_config_topic_and_beyond_its_end() -> None:
    stream = Stream("orders", 3, partitioning=TWO)
    assert Configuration().apply(stream.config_key, stream.to_json()).streams == {"orders": stream}
    gone = RemovedStream("orders", "default", 3, 17, partitioning=TWO)
    kept = Configuration().apply(gone.config_key, gone.to_json())
    assert kept.removed_streams == {"orders": gone}
    old = json.dumps(
        {"name": "orders", "tenant": "default", "partition_count": 3, "removed_at_ms": 17}
    )
    read = Configuration().apply(gone.config_key, old.encode()).removed_streams["orders"]
    assert read.partitioning is None


@pytest.mark.parametrize("shard", ["eu-1", "7", "007", "A", "a.b:c_d", "1.2.3", "x" * 100])
def test_what_a_text_or_a_whole_number_says_is_a_shard(shard: str) -> None:
    assert stream_of(1, "/a", [shard]).partitioning == Partitioning("/a", (shard,))


@pytest.mark.parametrize(
    "shard",
    ["", "-1", "a,b", "a b", "ä", "x" * 101, "true", "null", "false", "1.5", "1e5", "NaN",
     "Infinity", '"a"', "{}", 7, None],
)  # fmt: skip
def test_what_could_be_said_otherwise_is_none(shard: object) -> None:
    with pytest.raises(ConfigError, match=r"partitioning\.shards\.1") as caught:
        stream_of(9, "/a", ["ok", shard])
    assert caught.value.setting == "partitioning.shards.1"


@pytest.mark.parametrize(
    ("pointer", "shards", "setting"),
    [
        ("", ["a"], "partitioning.pointer"),
        ("tenant", ["a"], "partitioning.pointer"),
        ("/a", [], "partitioning.shards"),
        ("/a", ["a", "b", "a"], "partitioning.shards"),
        ("/a", [f"s{n}" for n in range(SHARDS_MAX + 1)], "partitioning.shards"),
        ("/a", ["a", "b", "c", "d"], "partition_count"),
    ],
)
def test_a_partitioning_that_cannot_be_is_refused(
    pointer: str, shards: list[str], setting: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        stream_of(3, pointer, shards)
    assert caught.value.setting == setting


def test_what_lies_where_it_would_be_laid_is_kept() -> None:
    three = Partitioning("/tenant", ("eu-1", "eu-2", "us-1"))
    assert TWO.keeps(TWO)
    assert three.keeps(TWO)
    assert not TWO.keeps(three)
    assert not Partitioning("/tenant", ("eu-2", "eu-1")).keeps(TWO)
    assert not Partitioning("/who", ("eu-1", "eu-2")).keeps(TWO)
