"""Measures delivery's share of its rate while an archive of the same stream is filled.

The archive keeps the backlog that is delivered, in a folder.
"""

from benchmarks.archive.archive_store import archive_of, folder_store
from benchmarks.archive.beside import EVENTS, STREAM, beside_delivery
from benchmarks.pipelines.bench import Bench


def measure(bench: Bench) -> dict[str, float]:
    """The archive of each round is another one."""
    folder_store(bench)
    found = beside_delivery(
        bench, lambda nth: archive_of(STREAM, f"both-{nth}"), bench.count(EVENTS)
    )
    return {
        "delivery_share": found.share,
        "delivery_alone_events_per_s": found.alone_per_s,
        "delivery_beside_events_per_s": found.beside_per_s,
        "archive_beside_events_per_s": found.pipeline_per_s,
    }
