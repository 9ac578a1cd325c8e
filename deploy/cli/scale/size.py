"""`hifi size`: shows what topics keep now and later, and when a disk will be full."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.printing import out, print_json, print_table, talk, when
from deploy.cli.scale.inputs import AsOutput, Output, span_s
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topic_safety import TopicState
from shared.event.topics import OURS
from shared.runtime.clock import now_ms
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from shared.scale.retention import (
    BrokerDisk,
    TopicForecast,
    TopicUse,
    days_until_full,
    forecast_of,
)

# Warn if a disk will be full within this: a week and a weekend to act.
_DAYS_NEAR = 9.0
_MB = 1_000_000
# Kafka's defaults for a topic that does not set its segments' age and size: a week, 1 GiB.
_SEGMENT_MS, _SEGMENT_BYTES = 7 * DAY_MS, 2**30


@dataclass(frozen=True, slots=True)
class SizeReport:
    """The sizes of topics, and the disks of brokers."""

    at_ms: int
    topics: Sequence[TopicForecast]
    disks: Sequence[BrokerDisk]


def size(
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    window: Annotated[
        str, typer.Option(metavar="SPAN", help="The forecast continues the traffic of this span.")
    ] = "1h",
    output: AsOutput = Output.TABLE,
) -> None:
    """Show how much Hifi's topics store now and later, and when a disk will be full.

    It asks Kafka, as the operator. The present size is measured on the brokers' disks. The forecast
    continues the traffic of the last hour, up to each topic's retention.

        hifi size --kafka broker-1:9092 --window 1d
    """
    report = asyncio.run(_look(kafka, round(span_s(window) * 1_000)))
    if output is Output.JSON:
        print_json(_as_json(report))
        return
    print_table(
        ("topic", "kept by", "MB now", "MB to come", "MB/s", "oldest record", "age", "partitions"),
        [_row(each, report.at_ms) for each in report.topics],
        numbers=1,
    )
    out.print()
    full = [(disk, days_until_full(disk, report.topics)) for disk in report.disks]
    rows = [_disk_row(disk, days) for disk, days in full]
    print_table(("broker", "MB of Hifi", "MB free", "full in"), rows, numbers=3)
    for disk, days in full:
        if days is not None and days < _DAYS_NEAR:
            talk.print(
                f"The disk of broker {disk.broker} is full in {days:,.1f} days: enlarge it, or keep"
                " events for less time (retention.ms of the largest topics).",
                style="red",
            )


async def _look(kafka: str, window_ms: int) -> SizeReport:
    at_ms = now_ms()
    async with topic_admin(kafka) as admin, open_reader(kafka) as reader:
        names = sorted(name for name in await admin.names() if name.startswith(OURS))
        states = await admin.states(names)
        disks = await admin.disks(states)
        uses = await _uses(reader, states, disks, at_ms=at_ms, window_ms=window_ms)
    topics = [forecast_of(use) for use in uses]
    topics.sort(key=lambda each: (-each.use.stored_bytes, each.use.name))
    return SizeReport(at_ms, topics, disks)


async def _uses(
    reader: KafkaReader,
    states: Mapping[str, TopicState],
    disks: Sequence[BrokerDisk],
    *,
    at_ms: int,
    window_ms: int,
) -> list[TopicUse]:
    spans = await reader.spans(states)
    oldest = await reader.oldest_ms(states)
    # In a partition without recent records, the window begins at its end.
    begins = await reader.offsets_at(dict.fromkeys(spans, at_ms - window_ms))
    by_topic = groupby(sorted(spans), key=attrgetter("topic"))
    partitions = {name: list(of_topic) for name, of_topic in by_topic}
    uses = []
    for name, state in states.items():
        ours = partitions.get(name, [])
        came_ms = [oldest[partition] for partition in ours if partition in oldest]
        oldest_ms = min(came_ms, default=None)
        replicas_bytes = sum(disk.topic_bytes.get(name, 0) for disk in disks)
        uses.append(
            TopicUse(
                name=name,
                partitions=state.partition_count,
                copies=state.replicas_min,
                retention_ms=_limit(state, "retention.ms"),
                retention_bytes=_limit(state, "retention.bytes"),
                is_compacted="compact" in state.settings.get("cleanup.policy", ""),
                segment_ms=int(state.settings.get("segment.ms", _SEGMENT_MS)),
                segment_bytes=int(state.settings.get("segment.bytes", _SEGMENT_BYTES)),
                record_count=sum(end - begin for begin, end in map(spans.__getitem__, ours)),
                stored_bytes=replicas_bytes // max(state.replicas_min, 1),
                oldest_ms=oldest_ms,
                recent_count=sum(_since(spans[each], begins.get(each)) for each in ours),
                # A topic younger than the window got all its events since it was created.
                window_ms=min(window_ms, at_ms - oldest_ms) if oldest_ms is not None else 0,
            )
        )
    return uses


def _since(span: tuple[int, int], begin: int | None) -> int:
    return 0 if begin is None else span[1] - max(begin, span[0])


def _limit(state: TopicState, setting: str) -> int | None:
    """Return a topic's retention limit; None if it has none, which Kafka writes as -1."""
    if setting == "retention.ms" and "delete" not in state.settings.get("cleanup.policy", ""):
        return None
    value = int(state.settings.get(setting, "-1"))
    return None if value < 0 else value


def _row(each: TopicForecast, at_ms: int) -> tuple[str, ...]:
    use = each.use
    age = "-" if use.oldest_ms is None else _span(at_ms - use.oldest_ms)
    return (
        use.name,
        _bound(each),
        f"{use.stored_bytes * use.copies / _MB:,.1f}",
        "-" if each.kept_bytes is None else f"{each.kept_bytes * use.copies / _MB:,.1f}",
        f"{each.bytes_s * use.copies / _MB:,.3f}",
        "-" if use.oldest_ms is None else when(use.oldest_ms),
        age,
        f"{use.partitions}",
    )


def _bound(each: TopicForecast) -> str:
    match each.bound:
        case "time":
            return _span(each.use.retention_ms or 0)
        case "size":
            return f"{(each.use.retention_bytes or 0) / _MB:,.0f} MB a partition"
        case _:
            return each.bound


def _span(length_ms: int) -> str:
    if length_ms >= DAY_MS:
        return f"{length_ms / DAY_MS:,.1f} days"
    return f"{length_ms / HOUR_MS:.1f} h"


def _disk_row(disk: BrokerDisk, days: float | None) -> tuple[str, ...]:
    known = disk.free_bytes is not None
    return (
        f"{disk.broker}",
        f"{sum(disk.topic_bytes.values()) / _MB:,.1f}",
        f"{(disk.free_bytes or 0) / _MB:,.0f}" if known else "not known",
        f"{days:,.1f} days" if days is not None else ("never" if known else "not known"),
    )


def _as_json(report: SizeReport) -> dict[str, object]:
    return {
        "at_ms": report.at_ms,
        "topics": [
            asdict(each.use)
            | {"bound": each.bound, "bytes_s": each.bytes_s, "kept_bytes": each.kept_bytes}
            | {"most_bytes": None if each.most_bytes == math.inf else each.most_bytes}
            for each in report.topics
        ],
        "disks": [
            {
                "broker": disk.broker,
                "total_bytes": disk.total_bytes,
                "free_bytes": disk.free_bytes,
                "topic_bytes": dict(disk.topic_bytes),
                "days_until_full": days_until_full(disk, report.topics),
            }
            for disk in report.disks
        ],
    }
