"""Follows each acknowledged event to its end: delivered, waiting, dead, or unaccounted for."""

import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from loadtests.events import find
from loadtests.recorder import PERCENTILES, Range, slope
from loadtests.sink import Sink
from shared.event.record import KafkaPartition
from shared.event.topics import DEAD, RETRIER, retry_topics
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import open_reader
from shared.runtime.setup_error import KafkaUnavailableError

# A lane's restart after a fault has taken up to half a minute.
_STANDSTILL_S = 45.0
# Longer than the first lane takes to start in a new Spark on busy cores.
FIRST_S = 180.0
_LOOK_S = 0.5
# A backlog drains at the pace of delivery; events that take longer than this count as missing.
_DRAIN_S_MAX = 600.0
# Nobody would follow more ids than this by hand.
_IDS_MAX = 100


@dataclass(frozen=True, slots=True)
class Ends:
    """The outcomes of a step's acknowledged events."""

    acked: int
    delivered: int
    waiting: int
    dead: int
    # The ages of events that were due during the measurement.
    age_ms: dict[str, float]
    backlog_share: float | None
    # The number of events that arrived in each second since the beginning.
    came: list[list[int]]
    # Repeated arrivals; each repeat counts.
    repeats: int
    drained_s: float
    # Why Kafka was not searched for the rest.
    not_asked: str = ""
    # The first ids of unaccounted events.
    lost_ids: tuple[str, ...] = ()

    @property
    def unaccounted(self) -> int:
        return self.acked - self.delivered - self.waiting - self.dead


async def reconcile(
    step: dict[str, Any], sink: Sink, kafka: str, *, standstill_s: float | None = None
) -> Ends:
    """Wait until all events have arrived or no more do; then search Kafka for the rest."""
    standstill_s = _STANDSTILL_S if standstill_s is None else standstill_s
    acked = sum(end - first for _, ranges in step["acked"] for first, end in ranges)
    ended_s = time.monotonic()
    missing = _wait_for(step, sink, standstill_s)
    drained_s = time.monotonic() - ended_s
    gone = _count(missing)
    kept, not_asked = {"waiting": 0, "dead": 0}, ""
    lost = {
        (worker, number)
        for worker, ranges in missing
        for first, end in ranges
        for number in range(first, end)
    }
    if gone:
        try:
            kept, lost = await _kept_in_kafka(kafka, step, lost)
        except KafkaUnavailableError as error:
            # Do not end a rating of many steps here: the events count as unaccounted.
            not_asked = str(error)
    figures = sink.figures(step["run"])
    begun_s = step["begun_us"] / 1e6
    came: Counter[int] = Counter()
    for second, count in figures["seconds"].items():
        came[round(second - begun_s)] += count
    return Ends(
        acked=acked,
        delivered=acked - gone,
        **kept,
        age_ms=_ages(step, figures["ages_ms"]),
        backlog_share=_backlog_share(step, came),
        came=[[second, count] for second, count in sorted(came.items())],
        repeats=figures["repeats"],
        drained_s=round(drained_s, 1),
        not_asked=not_asked,
        lost_ids=tuple(f"{step['run']}-{worker}-{n:010d}" for worker, n in sorted(lost)[:_IDS_MAX]),
    )


def _wait_for(
    step: dict[str, Any], sink: Sink, standstill_s: float
) -> list[tuple[int, list[Range]]]:
    begun_s = moved_s = time.monotonic()
    least: int | None = None
    while missing := sink.missing(step["run"], step["acked"]):
        now_s = time.monotonic()
        if least is None or _count(missing) < least:
            least, moved_s = _count(missing), now_s
        if now_s - moved_s > standstill_s or now_s - begun_s > _DRAIN_S_MAX:
            break
        time.sleep(_LOOK_S)
    return missing


def _count(missing: Iterable[tuple[int, Iterable[Range]]]) -> int:
    return sum(end - first for _, ranges in missing for first, end in ranges)


async def _kept_in_kafka(
    kafka: str, step: dict[str, Any], sought: set[tuple[int, int]]
) -> tuple[dict[str, int], set[tuple[int, int]]]:
    """Count the sought events that wait in a tier or are dead, each once; return the rest too."""
    waiting_in = retry_topics(tier.name for tier in RetrySchedule().tiers)
    counts: dict[str, int] = {}
    async with LaneGroups(kafka) as groups:
        passed = await groups.position(RETRIER) or {}
    async with open_reader(kafka) as log:
        # Dead first: a dead event no longer waits, though its record in a tier is still there.
        for end, topics in (("dead", [DEAD]), ("waiting", waiting_in)):
            there = set()
            records = await log.since(topics, step["begun_us"] // 1000)
            async for record in records.records():
                where = KafkaPartition(record.origin.topic, record.origin.partition)
                if record.origin.offset < passed.get(where, 0):
                    # The retrier has passed this record, so the event is elsewhere or lost.
                    continue
                there |= {
                    (each.worker, each.number)
                    for each in find(record.value or b"")
                    if each.run.decode() == step["run"]
                }
            counts[end] = len(there & sought)
            sought = sought - there
    return counts, sought


def _ages(step: dict[str, Any], ages_ms: dict[int, dict[str, int]]) -> dict[str, float]:
    first = math.ceil(step["begun_us"] / 1e6 + step["warmup_s"])
    ages: Counter[int] = Counter()
    for second, counts in ages_ms.items():
        if second >= first:
            ages.update({int(age): count for age, count in counts.items()})
    total, passed, table = sum(ages.values()), 0, {}
    wanted = [(f"p{each:g}", each / 100 * total) for each in PERCENTILES]
    for age, count in sorted(ages.items()):
        passed += count
        while wanted and passed >= wanted[0][1]:
            table[wanted.pop(0)[0]] = float(age)
    return table


def _backlog_share(step: dict[str, Any], came: Counter[int]) -> float | None:
    """Return the growth of the backlog, as a share of the rate."""
    acked = {second: events for second, _, _, events in step["seconds"]}
    first, last = math.ceil(step["warmup_s"]), int(step["warmup_s"] + step["measured_s"])
    waiting = 0.0
    points = []
    for second in range(first, last):
        waiting += acked.get(second, 0) - came[second]
        points.append((float(second), waiting))
    return slope(points) / step["acked_per_s"] if step["acked_per_s"] else None
