"""How close `deliver` comes to sending ready-made bodies: the cost of everything around HTTP.

(a) the limit: the same HTTP client posts bodies that were joined beforehand, as many at a time;
(b) `deliver` from Arrow batch to receipts. Interleaved, 500 events of 500 bytes in a batch.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import describe
from benchmarks.sink import running_sink
from delivery.deliver import Plan, deliver
from delivery.sender import Sender
from shared.destination import Destination
from shared.envelope import event_headers
from shared.record import Origin, RecordIn
from shared.runtime.arrow_rows import batch_in
from shared.topics import RECEIPTS, STATE, stream_topic

_EVENTS = 30_000
_BATCH = 500
_EVENT_BYTES = 500
_ROUNDS = 5


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    with running_sink() as url, TemporaryDirectory() as folder:
        to = Destination(stream="bench", name="sink", url=url, batch_count_max=_BATCH)
        rounds = [
            (_per_s(lambda: _post_bodies(to)), _per_s(_delivery(to, Path(folder))))
            for _ in range(_ROUNDS)
        ]
    limits = [limit for limit, _ in rounds[1:]]
    ours = [our for _, our in rounds[1:]]
    ratio = statistics.median(our / limit for limit, our in rounds[1:])
    print(f"(a) ready-made bodies   {statistics.median(limits):>10,.0f} events/s")
    print(f"(b) deliver             {statistics.median(ours):>10,.0f} events/s")
    print(f"    b / a               {ratio:>10.2f}   (median of {_ROUNDS - 1} interleaved rounds)")
    print(
        json.dumps(
            {
                "bench": "deliver",
                "ratio": round(ratio, 3),
                "limit_events_per_s": round(statistics.median(limits)),
                "deliver_events_per_s": round(statistics.median(ours)),
                **describe(),
            }
        )
    )


def _per_s(run: Callable[[], None]) -> float:
    started_s = time.perf_counter()
    run()
    return _EVENTS / (time.perf_counter() - started_s)


def _event(number: int) -> bytes:
    head = b'{"id":"%d","pad":"' % number
    return head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}'


def _post_bodies(to: Destination) -> None:
    body = b"[%b]" % b",".join(_event(number) for number in range(_BATCH))

    async def post_all() -> None:
        sender = Sender(allows_private=True)
        gate = asyncio.Semaphore(to.parallel_max)

        async def post() -> None:
            async with gate:
                await sender.send(to, body, {"content-type": "application/json"})

        try:
            await asyncio.gather(*(post() for _ in range(_EVENTS // _BATCH)))
        finally:
            await sender.close()

    asyncio.run(post_all())


def _delivery(to: Destination, flows: Path) -> Callable[[], None]:
    """What Spark would hand over, made before the clock starts."""
    rows = 10_000
    batches = [
        batch_in(
            [
                RecordIn(
                    origin=Origin(stream_topic("bench"), 0, offset),
                    timestamp_ms=0,
                    key=None,
                    value=_event(offset),
                    headers=event_headers(
                        event_id=str(offset), event_time_ms=offset, accepted_at_ms=offset
                    ),
                )
                for offset in range(first, first + rows)
            ]
        )
        for first in range(0, _EVENTS, rows)
    ]
    # With the flow's files, as a lane has them.
    plan = Plan("stream", {to.id: to}, allows_private=True, flow_folder=flows)

    def run() -> None:
        rows = [
            row for batch in deliver(batches, plan) for row in batch.column("topic").to_pylist()
        ]
        assert rows.count(RECEIPTS) == _EVENTS // _BATCH, "every batch leaves exactly one receipt"
        assert set(rows) <= {RECEIPTS, STATE}, "nothing is retried, and nothing given up"

    return run


if __name__ == "__main__":
    main()
