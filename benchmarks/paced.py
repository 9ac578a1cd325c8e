"""Writes events to streams at a steady pace; each contains its creation time.

As a separate process: `python -m benchmarks.paced SERVERS EVENTS_PER_S DURATION_S STREAM...`; each
stream gets events at this rate.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from shared.event.envelope import event_headers
from shared.event.topics import stream_topic
from shared.runtime.kafka.clients import new_producer

_EVENT_BYTES = 500
# Events are sent in steps of 5 ms; sleeping between single ones would measure the sleep.
_STEP_S = 0.005
_FLUSH_S = 60.0


async def write_paced(
    servers: str, streams: Sequence[str], *, events_per_s: float, duration_s: float
) -> int:
    """Write for `duration_s`; return how many events of each stream Kafka reported as stored."""
    producer = new_producer(servers)
    await producer.start()
    topics = [stream_topic(stream) for stream in streams]
    partitions = {topic: sorted(await producer.partitions_for(topic)) for topic in topics}
    reports: list[asyncio.Future[Any]] = []
    written = 0
    try:
        begun_s = time.perf_counter()
        while (now_s := time.perf_counter()) < begun_s + duration_s:
            due = int((now_s - begun_s) * events_per_s)
            for number in range(written, due):
                for topic in topics:
                    where = partitions[topic][number % len(partitions[topic])]
                    reports.append(
                        await producer.send(
                            topic, _event(number), partition=where, headers=_headers(number)
                        )
                    )
            written = due
            await asyncio.sleep(_STEP_S)
        await asyncio.gather(*reports)
    finally:
        await producer.stop()
    return written


def write_paced_cheaply(
    servers: str, streams: Sequence[str], *, events_per_s: float, duration_s: float
) -> int:
    """Do the same with librdkafka, which leaves more processor time to the measured process.

    Kafka partitions are not assigned in turn, and all streams get the same events.
    """
    topics = [stream_topic(stream) for stream in streams]
    producer = _cheap_producer(servers)
    written, begun_s = 0, time.perf_counter()
    while (now_s := time.perf_counter()) < begun_s + duration_s:
        due = int((now_s - begun_s) * events_per_s)
        for number in range(written, due):
            event, headers = _event(number), _headers(number)
            for topic in topics:
                producer.produce(topic, event, headers=headers)
        written = due
        producer.poll(_STEP_S)
    left = producer.flush(_FLUSH_S)
    assert left == 0, f"{left} events are still open"
    return written


def write_all(servers: str, stream: str, *, count: int, event_bytes: int = _EVENT_BYTES) -> None:
    """Write `count` events as fast as librdkafka can."""
    topic = stream_topic(stream)
    producer = _cheap_producer(servers)
    partitions = len(producer.list_topics(topic).topics[topic].partitions)
    for number in range(count):
        event, headers, where = _event(number, event_bytes), _headers(number), number % partitions
        while True:
            try:
                producer.produce(topic, event, partition=where, headers=headers)
            except BufferError:
                # The producer's queue is full.
                producer.poll(_STEP_S)
            else:
                break
    left = producer.flush(_FLUSH_S)
    assert left == 0, f"{left} events are still open"


def _cheap_producer(servers: str) -> Any:
    return Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 5})


def _event(number: int, event_bytes: int = _EVENT_BYTES) -> bytes:
    head = b'{"id":"%d","made_ns":%d,"pad":"' % (number, time.time_ns())
    return head + b"x" * (event_bytes - len(head) - 2) + b'"}'


def _headers(number: int) -> list[tuple[str, bytes]]:
    now = time.time_ns() // 1_000_000
    return list(event_headers(event_id=str(number), event_time_ms=now, accepted_at_ms=now))


if __name__ == "__main__":
    servers, rate, duration, *wanted = sys.argv[1:]
    print(
        asyncio.run(
            write_paced(servers, wanted, events_per_s=float(rate), duration_s=float(duration))
        )
    )
