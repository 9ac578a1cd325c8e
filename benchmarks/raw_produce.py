"""Produces events as fast as librdkafka can, from one loop that does nothing else: the limit.

Arguments: bootstrap servers, topic, seconds, and `reports` or `blind`. Prints events per second,
from the first event to the report of the last.

With `reports` each event has a delivery callback, and every event must be reported as stored. The
gateway needs such reports before it can answer 2xx, because an empty queue after a flush does not
tell stored events from failed ones. `blind` leaves the callbacks out. Both use acks=all and
idempotence, and otherwise librdkafka's defaults.
"""

import sys
import time
from typing import Any

from confluent_kafka import Producer

from benchmarks.events import event

# The events of one request of the largest size, which are sent repeatedly.
_DISTINCT = 1_000


class _ReportCounter:
    """Counts the reports of stored and failed events."""

    def __init__(self) -> None:
        self.stored = self.failed = 0

    def __call__(self, error: Any, _: Any) -> None:
        if error is None:
            self.stored += 1
        else:
            self.failed += 1


def main() -> None:
    servers, topic, duration_s, how = sys.argv[1:]
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})
    values = [event(number) for number in range(_DISTINCT)]
    # The first record opens the connections.
    producer.produce(topic, values[0])
    producer.flush()
    counted = _ReportCounter()
    produced = 0
    begun_s = time.perf_counter()
    until_s = begun_s + float(duration_s)
    while time.perf_counter() < until_s:
        for value in values:
            while True:
                try:
                    if how == "reports":
                        producer.produce(topic, value, on_delivery=counted)
                    else:
                        producer.produce(topic, value)
                except BufferError:
                    producer.poll(0.01)
                    continue
                break
        produced += len(values)
        producer.poll(0)
    left = producer.flush(60)
    took_s = time.perf_counter() - begun_s
    assert left == 0, f"{left} events are still open"
    if how == "reports":
        assert (counted.stored, counted.failed) == (produced, 0), "not every event was stored"
    print(produced / took_s)


if __name__ == "__main__":
    main()
