"""Packs spans into units and tasks: near spans are read once, and tasks have about equal work."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from math import ceil

from delivery.lanes.marks import OPEN
from delivery.lanes.units import JobKind, Span, Strand, Unit, worker_of
from shared.event.record import KafkaPartition

# A destination that is further behind than this in a Kafka partition has jobs of its own: in a
# shared job it would read events that no other needs, for longer than the others take.
NEAR = 2_000
# The number of deliveries that justify a task; most deliver one event, and take a millisecond.
_TASK_DELIVERIES = 400
# More tasks than cores do not make a small machine faster.
_TASKS_MAX = 4


def crews(
    kind: JobKind, spans: Mapping[Strand, Span], worker_count: int
) -> Mapping[int | None, Mapping[Strand, Span]]:
    """Return the spans of each job, keyed by the worker process that is to run it."""
    if kind not in {JobKind.SHARED, JobKind.FOLLOWING}:
        return {None: spans}
    # A destination always has the same worker, which has open connections, and knows its flow.
    by_worker: dict[int | None, dict[Strand, Span]] = {}
    for strand, span in spans.items():
        worker = worker_of(strand.destination, worker_count)
        by_worker.setdefault(worker, {})[strand] = span
    return by_worker


def units_of(spans: Mapping[Strand, Span]) -> list[Unit]:
    """Join near spans, which are read once; nothing is read between units that are far apart."""
    parts = defaultdict[KafkaPartition, list[dict[str, Span]]](list)
    reached: dict[KafkaPartition, int] = {}
    for (name, where), span in sorted(spans.items(), key=lambda each: each[1].begin):
        if where not in reached or span.begin - reached[where] > NEAR:
            parts[where].append({})
        parts[where][-1][name] = span
        reached[where] = max(reached.get(where, 0), end_of(span))
    return [Unit(where, part) for where, groups in parts.items() for part in groups]


def packed(units: Collection[Unit], kind: JobKind, count_max: int) -> list[list[Unit]]:
    """Divide units among tasks, with about the same number of deliveries in each."""
    sized = sorted(((_size(unit), unit) for unit in units), key=lambda each: -each[0])
    # A lone destination sends many events, which justify a task for each Kafka partition.
    worth = ceil(sum(size for size, _ in sized) / _TASK_DELIVERIES)
    worth = len(units) if kind is JobKind.ALONE else worth
    count = max(1, min(_TASKS_MAX, count_max, len(units), worth))
    tasks: list[list[Unit]] = [[] for _ in range(count)]
    loads: Counter[int] = Counter()
    for size, unit in sized:
        lightest = min(range(count), key=lambda task: loads[task])
        tasks[lightest].append(unit)
        loads[lightest] += size
    return tasks


def _size(unit: Unit) -> int:
    """Count deliveries, as if each event were one."""
    return sum((span.end or span.begin) - span.begin for span in unit.spans.values())


def end_of(span: Span) -> int:
    return OPEN if span.end is None else span.end
