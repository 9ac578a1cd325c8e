"""Writes events to a stream at a steady pace, each with the time of its making inside.

Run as a process of its own: `python -m benchmarks.paced SERVERS STREAM EVENTS_PER_S DURATION_S`.
"""

import asyncio
import sys
import time
from typing import Any

from aiokafka import AIOKafkaProducer

from shared.envelope import event_headers
from shared.topics import stream_topic

_EVENT_BYTES = 500
# Events are due in steps of 5 ms; sleeping between single ones would measure the sleep.
_STEP_S = 0.005


async def write_paced(servers: str, stream: str, *, events_per_s: float, duration_s: float) -> int:
    """Write for so long; the number of events that Kafka has reported stored."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    await producer.start()
    partitions = sorted(await producer.partitions_for(stream_topic(stream)))
    reports: list[asyncio.Future[Any]] = []
    try:
        begun_s = time.perf_counter()
        while (now_s := time.perf_counter()) < begun_s + duration_s:
            due = int((now_s - begun_s) * events_per_s)
            reports += [
                await producer.send(
                    stream_topic(stream),
                    _event(number),
                    partition=partitions[number % len(partitions)],
                    headers=_headers(number),
                )
                for number in range(len(reports), due)
            ]
            await asyncio.sleep(_STEP_S)
        await asyncio.gather(*reports)
    finally:
        await producer.stop()
    return len(reports)


async def write_all(servers: str, stream: str, *, count: int) -> None:
    """Write so many events as fast as this client can."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
    await producer.start()
    try:
        partitions = sorted(await producer.partitions_for(stream_topic(stream)))
        for number in range(count):
            await producer.send(
                stream_topic(stream),
                _event(number),
                partition=partitions[number % len(partitions)],
                headers=_headers(number),
            )
        await producer.flush()
    finally:
        await producer.stop()


def _event(number: int) -> bytes:
    head = b'{"id":"%d","made_ns":%d,"pad":"' % (number, time.time_ns())
    return head + b"x" * (_EVENT_BYTES - len(head) - 2) + b'"}'


def _headers(number: int) -> list[tuple[str, bytes]]:
    now = time.time_ns() // 1_000_000
    return list(event_headers(event_id=str(number), event_time_ms=now, accepted_at_ms=now))


if __name__ == "__main__":
    written = asyncio.run(
        write_paced(
            sys.argv[1],
            sys.argv[2],
            events_per_s=float(sys.argv[3]),
            duration_s=float(sys.argv[4]),
        )
    )
    print(written)
