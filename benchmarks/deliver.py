"""Measures `deliver` against sending ready-made bodies: the cost of everything except HTTP.

(a) the limit: the same HTTP client posts ready-made bodies, with as many requests at a time as (b);
(b) `deliver`, from fetched records to receipts. Interleaved rounds with batches of 500 events of
500 bytes.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecord

from benchmarks.report import report
from benchmarks.sink import running_sink
from delivery.event_columns import FetchedRecords
from delivery.http.sender import Sender
from delivery.sending import Plan
from shared.config.destination import Destination
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition
from shared.event.topics import RECEIPTS, STATE, stream_topic
from shared.proof.receipt import receipts_of
from shared.runtime.secret_box import SecretBox
from tests.support.delivery.deliver import deliver

_EVENTS = 30_000
_BATCH = 500
_EVENT_BYTES = 500
_ROUNDS = 5


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    with running_sink() as url, TemporaryDirectory() as folder:
        to = Destination(stream="bench", name="sink", url=url, batch_count_max=_BATCH)
        rounds = [
            (_measure(_posting(to)), _measure(_delivery(to, Path(folder)))) for _ in range(_ROUNDS)
        ]
    limit = _median([a for a, _ in rounds[1:]])
    ours = _median([b for _, b in rounds[1:]])
    ratio = statistics.median(b.per_s / a.per_s for a, b in rounds[1:])
    print(
        f"(a) ready-made bodies   {limit.per_s:>10,.0f} events/s {limit.cpu_us:6.2f} µs of CPU each"
    )
    print(
        f"(b) deliver             {ours.per_s:>10,.0f} events/s {ours.cpu_us:6.2f} µs of CPU each"
    )
    print(f"    b / a               {ratio:>10.2f}   (median of {_ROUNDS - 1} interleaved rounds)")
    report(
        "deliver",
        {
            "ratio": round(ratio, 3),
            "limit_events_per_s": round(limit.per_s),
            "deliver_events_per_s": round(ours.per_s),
            "limit_cpu_us": round(limit.cpu_us, 2),
            "deliver_cpu_us": round(ours.cpu_us, 2),
        },
    )


class _Run(NamedTuple):
    """Events per second, and processor time per event, which other processes affect less."""

    per_s: float
    cpu_us: float


def _median(runs: Sequence[_Run]) -> _Run:
    return _Run(
        statistics.median(run.per_s for run in runs), statistics.median(run.cpu_us for run in runs)
    )


def _measure(run: Callable[[], None]) -> _Run:
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    run()
    cpu_s = time.process_time() - started_cpu_s
    return _Run(_EVENTS / (time.perf_counter() - started_s), cpu_s / _EVENTS * 1e6)


def _event(number: int) -> bytes:
    head = b'{"id":"%d","pad":"' % number
    return head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}'


def _record(offset: int) -> DefaultRecord:
    headers = event_headers(event_id=str(offset), event_time_ms=offset, accepted_at_ms=offset)
    return DefaultRecord(offset, offset, 0, None, _event(offset), list(headers))


def _posting(to: Destination) -> Callable[[], None]:
    """Return a sender of different bodies, because one body would stay in the cache."""
    bodies = [
        b"[%b]" % b",".join(map(_event, range(first, first + _BATCH)))
        for first in range(0, _EVENTS, _BATCH)
    ]

    async def post_all() -> None:
        sender = Sender(box=SecretBox([]), allows_private=True)
        gate = asyncio.Semaphore(to.parallel_max)

        async def post(body: bytes) -> None:
            async with gate:
                await sender.post(to, body, {"content-type": "application/json"})

        try:
            await asyncio.gather(*map(post, bodies))
        finally:
            await sender.close()

    return lambda: asyncio.run(post_all())


def _delivery(to: Destination, flows: Path) -> Callable[[], None]:
    """Prepare fetched batches before the measurement, and return the delivery to measure."""
    rows = 10_000
    batches = [
        FetchedRecords(
            KafkaPartition(stream_topic("bench"), 0),
            [_record(offset) for offset in range(first, first + rows)],
        )
        for first in range(0, _EVENTS, rows)
    ]
    # With the flow's files, as in a lane.
    plan = Plan("stream", {to.id: to}, allows_private=True, flow_folder=flows)

    def run() -> None:
        left: dict[str, list[bytes]] = {}
        for batch in deliver(batches, plan):
            for record in batch:
                left.setdefault(record.topic, []).append(record.value)
        count = sum(len(receipts_of(sheet)) for sheet in left[RECEIPTS])
        assert count == _EVENTS // _BATCH, "every batch leaves exactly one receipt"
        assert set(left) <= {RECEIPTS, STATE}, "nothing is retried, and nothing given up"

    return run


if __name__ == "__main__":
    main()
