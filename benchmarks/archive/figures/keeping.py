"""Measures how fast a stream is archived in a store, and restored.

A backlog of 400,000 events of 500 bytes in 4 Kafka partitions is archived in a folder; then 100,000
events are restored into another stream. Kafka and Spark share the machine.
"""

import asyncio
import time

from benchmarks.archive.archive_store import archive_of, folder_store
from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, count_of, make_streams
from deploy.cli.archive.restoring import Restore, Restoring, found
from shared.proof.archived import ArchiveId
from shared.runtime.archive.reading import listed, lives_of
from shared.runtime.archive.stores import OpenStore

_EVENTS = 400_000
_RESTORED = 100_000
_ROUNDS = 3
_WARM_UP_ROUNDS = 1


def measure(bench: Bench) -> dict[str, float]:
    """Return medians without the first round; each missing or repeated event is an error."""
    servers, count = bench.servers, bench.count(_EVENTS)
    bucket = folder_store(bench)
    make_streams(servers, ["kept", "again"])
    write_all(servers, "kept", count=count)
    rates, errors, largest_mb = [], 0, 0.0
    with bench.running(ARCHIVE_EVERY_S="0") as runner:
        for number in range(_WARM_UP_ROUNDS + _ROUNDS):
            name = f"kept-{number}"
            rates.append(runner.drain(archive_of("kept", name), count))
            objects = listed(bucket, _life(bucket, name)).objects
            errors += abs(sum(each.count for each in objects) - count)
            largest_mb = max(largest_mb, *(each.size / 1_048_576 for each in objects))
    restored = _restore(servers, bucket, "kept-0", bench.count(_RESTORED))
    # The count includes a marker after each transaction, so only a smaller count is an error.
    errors += count_of(servers, "again") < bench.count(_RESTORED)
    return {
        "archive_events_per_s": round(sorted(rates[_WARM_UP_ROUNDS:])[_ROUNDS // 2]),
        "restore_events_per_s": round(restored),
        "largest_object_mb": round(largest_mb, 1),
        "errors": errors,
    }


def _life(bucket: OpenStore, archive: str) -> ArchiveId:
    return lives_of(bucket, ArchiveId("default", "kept", archive))[-1]


def _restore(servers: str, bucket: OpenStore, archive: str, count: int) -> float:
    """Restore `count` events; return events per second."""
    wanted = Restore("bench", _life(bucket, archive), "again", None, None, None)
    restoring = Restoring(servers, bucket, wanted, found(bucket, wanted))

    async def some() -> float:
        began_s, run = time.monotonic(), restoring.run()
        async for done in run:
            if done >= count:
                break
        rate = restoring.done / (time.monotonic() - began_s)
        await run.aclose()
        return rate

    return asyncio.run(some())
