"""A topic in memory that several processes write and follow: the fake of a `Tail` and its topic."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gateway.intake.events import Event
from gateway.publish.report import Fate, Report
from shared.event.record import Origin, RecordIn
from shared.runtime.clock import now_ms

Take = Callable[[Sequence[RecordIn]], Any]


class ToldTopics:
    """Topics of one Kafka partition each. A follower gets all records, old ones first."""

    def __init__(self) -> None:
        self.fate = Fate.STORED
        # The writer dies before it writes.
        self.is_dying = False
        # How far the log's clock is ahead of ours.
        self.ahead_ms = 0
        self.logs: dict[str, list[RecordIn]] = defaultdict(list)
        self._takers: dict[str, list[Take]] = defaultdict(list)
        # A test's gateways run in threads of their own.
        self._turn = threading.Lock()

    @contextmanager
    def followed(self, takes: Mapping[str, Take]) -> Iterator[None]:
        """Pass each topic's records to its function, in the caller's event loop."""
        loop = asyncio.get_running_loop()

        def taker_of(take: Take) -> Take:
            return lambda records: loop.call_soon_threadsafe(take, records)

        takers = {topic: taker_of(take) for topic, take in takes.items()}
        with self._turn:
            for topic, taker in takers.items():
                taker(list(self.logs[topic]))
                self._takers[topic].append(taker)
        try:
            yield
        finally:
            with self._turn:
                for topic, taker in takers.items():
                    self._takers[topic].remove(taker)

    def write(self, topic: str, value: bytes) -> None:
        """Write a record that no process of Hifi would write."""
        self.publish(topic, [Event.of(id="", key=b"key", value=value, headers=())])

    def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        positions = range(len(events))
        if self.fate is Fate.NOT_STORED:
            return [Report(self.fate, positions, reason="not stored by the test")]
        if self.is_dying:
            return [Report(Fate.STORED, positions)]
        with self._turn:
            log = self.logs[topic]
            first, at_ms = len(log), now_ms() + self.ahead_ms
            log += [
                RecordIn(Origin(topic, 0, first + n), at_ms, event.key, event.value, ())
                for n, event in enumerate(events)
            ]
            for take in self._takers[topic]:
                take(log[first:])
        return [Report(self.fate, positions, 0, first)]
