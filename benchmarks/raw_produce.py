"""Produces events as fast as librdkafka can, from one loop that does nothing else: the limit.

Arguments: bootstrap servers, topic, bytes per event, seconds. Prints events per second, counted
from the first event to the report of the last.
"""

import sys
import time

from confluent_kafka import Producer

# How many events between two looks at the clock.
_STRIDE = 2_000


def main() -> None:
    servers, topic, event_bytes, duration_s = sys.argv[1:]
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            # As large as the gateway's batches, and as long a wait as librdkafka's own default.
            "batch.size": 524_288,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = b'{"id":"e","pad":"' + b"x" * (int(event_bytes) - 19) + b'"}'
    count = 0
    # The first record pays for the connections.
    producer.produce(topic, value)
    producer.flush()
    begun_s = time.perf_counter()
    until_s = begun_s + float(duration_s)
    while time.perf_counter() < until_s:
        for _ in range(_STRIDE):
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.01)
                continue
            count += 1
        producer.poll(0)
    left = producer.flush(60)
    assert left == 0, f"{left} events were not reported"
    print(count / (time.perf_counter() - begun_s))


if __name__ == "__main__":
    main()
