"""Writes the sizes of a plan as TOML for deploy/aws, and reads them back."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shared.event.topics import ACKED, DEAD, RECEIPTS, RETRY_PREFIX, STREAM_PREFIX
from shared.scale.brokers import COPIES, DISK_USE, ZONES
from shared.scale.catalogue import GB, BrokerKind
from shared.scale.scale_error import ScaleError
from shared.scale.sizing import Group, Sizing


class KafkaSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: BrokerKind
    broker: str
    broker_count: int
    # The size of each broker's disk; 0 with Express brokers, whose disks have no set size.
    disk_gb: int


class TopicCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of Kafka partitions, and the retention of streams."""

    stream_partitions: int
    stream_retention_ms: int
    retry_partitions: int
    dead_partitions: int
    receipts_partitions: int
    ledger_partitions: int


class GroupSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An autoscaling group."""

    instance: str
    count_min: int
    count_max: int
    # The events/s of one instance, and its highest planned use.
    rating: float
    use: float


class SiteSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes of a site's parts; `plan` is the traffic that they are for."""

    plan: Mapping[str, Any]
    kafka: KafkaSizes
    topics: TopicCounts
    gateway: GroupSizes
    delivery: GroupSizes


def site_sizes(sizing: Sizing, *, region: str, prices_at: str) -> SiteSizes:
    ask, brokers = sizing.ask, sizing.brokers
    partitions = {topic.name: topic.partitions for topic in sizing.topics}
    disk_gb = 0
    if brokers.size.kind == "standard":
        # Half of the disk stays free.
        disk_gb = -int(-sizing.flows.stored * COPIES // (GB * DISK_USE * brokers.count))
    return SiteSizes(
        plan={
            "events_per_s": ask.events_per_s,
            "event_bytes": ask.event_bytes,
            "fan_out": ask.fan_out,
            "retention_h": ask.retention_s / 3_600,
            "survives_zone": ask.survives_zone,
            "region": region,
            "prices_at": prices_at,
            "ratings": [sizing.gateways.rating_name, sizing.delivery.rating_name],
        },
        kafka=KafkaSizes(brokers.size.kind, brokers.size.name, brokers.count, disk_gb),
        topics=TopicCounts(
            stream_partitions=partitions[f"{STREAM_PREFIX}*"] // ask.streams,
            stream_retention_ms=round(ask.retention_s * 1_000),
            retry_partitions=partitions[f"{RETRY_PREFIX}*"],
            dead_partitions=partitions[DEAD],
            receipts_partitions=partitions[RECEIPTS],
            ledger_partitions=partitions[ACKED],
        ),
        gateway=_group_sizes(sizing.gateways),
        delivery=_group_sizes(sizing.delivery),
    )


def to_toml(sizes: SiteSizes) -> str:
    """Write each part as a table."""
    tables: Mapping[str, Mapping[str, Any]] = msgspec.to_builtins(sizes)
    return "\n\n".join(
        "\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())])
        for name, table in tables.items()
    )


def read_sizes(name: str, text: str, *, beside: str = "") -> SiteSizes:
    """Read the sizes in a file called `name`; ScaleError says what is wrong with them.

    A table called `beside` is ignored.
    """
    try:
        tables = tomllib.loads(text)
        tables.pop(beside, None)
        return msgspec.convert(tables, SiteSizes)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScaleError(
            f"{name} has no sizes of a plan: {error}. `hifi plan --output toml` writes them."
        ) from error


def _group_sizes(group: Group) -> GroupSizes:
    # At least one in each zone, to survive the loss of a zone; at most the plan's number, for the
    # peak.
    return GroupSizes(group.instance.name, ZONES, group.count, group.rating, group.use)


def _value(value: str | float | bool | Sequence[str]) -> str:  # noqa: FBT001 - a value of a table
    # JSON's strings, numbers, booleans and lists of strings are valid TOML as well.
    return json.dumps(value, ensure_ascii=False)
