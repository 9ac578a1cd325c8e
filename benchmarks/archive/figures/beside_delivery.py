"""Measures delivery's share of its rate while an archive of the same stream is filled.

The archive, in a folder, gets the same backlog that is delivered.
"""

from benchmarks.archive.archive_store import archive_of, folder_store
from benchmarks.archive.beside import EVENTS, STREAM, beside_delivery
from benchmarks.pipelines.bench import Bench


def measure(bench: Bench) -> dict[str, float]:
    """Measure rounds, each with a new archive."""
    folder_store(bench)
    medians = beside_delivery(
        bench, lambda number: archive_of(STREAM, f"both-{number}"), bench.count(EVENTS)
    )
    return {
        "delivery_share": medians.share,
        "delivery_alone_events_per_s": medians.alone_per_s,
        "delivery_beside_events_per_s": medians.beside_per_s,
        "archive_beside_events_per_s": medians.pipeline_per_s,
    }
