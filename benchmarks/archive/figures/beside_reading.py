"""Measures delivery's share of its rate while a pipeline reads an archive of another stream.

The pipeline reads 200,000 events of 500 bytes, which Kafka has deleted, from a folder, and writes
one in a hundred to a stream.
"""

import asyncio

from benchmarks.archive.archive_store import archive_of, folder_store
from benchmarks.archive.beside import beside_delivery
from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, make_streams, put
from shared.config.pipeline import Pipeline
from tests.support.kafka.topics_anew import ends_of, forget

_STREAM, _EVENTS = "aged", 200_000


def measure(bench: Bench) -> dict[str, float]:
    """Measure rounds, each with a reader that begins with the first event."""
    servers, events = bench.servers, bench.count(_EVENTS)
    folder_store(bench)
    make_streams(servers, [_STREAM])
    write_all(servers, _STREAM, count=events)
    archive = archive_of(_STREAM, "aged-archive")
    with bench.running(ARCHIVE_EVERY_S="0") as runner:
        runner.drain(archive, events)
    # The reading pipeline looks the archive up in the configuration.
    put(servers, [archive])
    asyncio.run(forget(servers, asyncio.run(ends_of(servers, _STREAM))))
    medians = beside_delivery(bench, _reader, events)
    return {
        "reading_share": medians.share,
        "reading_beside_events_per_s": medians.pipeline_per_s,
    }


def _reader(nth: int) -> Pipeline:
    return Pipeline.of(
        {
            "name": f"aged-{nth}",
            "from": {"stream": _STREAM, "start": 0},
            "schema": "id STRING",
            "steps": [{"where": "id LIKE '%00'"}],
            "to": [{"stream": "aged-some"}],
        }
    )
