"""Places events of a sharded stream from Spark, as the gateway places its own."""

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, StringType, StructField, StructType

from shared.config.configuration import Configuration
from shared.config.partitioning import Partitioning
from shared.config.pipeline import Pipeline

# Streams that place their events by shard, by their names.
Partitionings: TypeAlias = Mapping[str, Partitioning]
NO_SHARDS: Partitionings = MappingProxyType({})
# The options with which plans read events: the last of two members of one name counts.
_READING = {"mode": "PERMISSIVE", "allowNonNumericNumbers": "false"}


def partitionings(pipeline: Pipeline, configuration: Configuration) -> Partitionings:
    """The partitionings of those target streams that place their events by shard."""
    known = configuration.streams
    to = {each.stream: known[each.stream] for each in pipeline.streams_to if each.stream in known}
    return {name: each.partitioning for name, each in to.items() if each.partitioning}


def partition_at(partitioning: Partitioning, value: Column) -> Column:
    """The Kafka partition of an event with these bytes; null if it names no shard of the stream."""
    pointer = partitioning.pointer[1:].split("/")
    members = [member.replace("~1", "/").replace("~0", "~") for member in pointer]
    # Values other than texts and whole numbers arrive as JSON, which is never a shard's name.
    innermost: DataType = StringType()
    shape = reduce(
        lambda inner, member: StructType([StructField(member, inner)]), reversed(members), innermost
    )
    assert isinstance(shape, StructType), "a pointer names a member"
    read = F.from_json(value.cast("string"), shape, _READING)
    shard = reduce(Column.getField, members, read)
    # One text instead of a thousand literals, each of which would be a call of its own. Spark
    # splits it once, and no shard's name has a comma.
    shards = F.split(F.lit(",".join(partitioning.shards)), ",")
    place = F.array_position(shards, shard)
    return F.when(place > 0, (place - 1).cast("int"))
