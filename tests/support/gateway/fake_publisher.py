"""A publisher in memory, for tests that need no Kafka."""

import asyncio
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence

from gateway.intake.events import Event
from gateway.publish.open_topic import Tell
from gateway.publish.report import Fate, Report
from shared.event.topics import REQUESTS, SHARES, TRIALS, USES
from tests.support.kafka.memory_topic import ToldTopics

PARTITION_COUNT = 4
GATEWAY_TOPICS = {REQUESTS, SHARES, TRIALS, USES}


class FakePublisher:
    """Kafka in memory. `fates` and `fate` decide the fate of events; `hold` makes them wait."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.logs: dict[str, list[list[Event]]] = {
            topic: [[] for _ in range(PARTITION_COUNT)] for topic in topics
        }
        # The topics between gateways, which work whatever the fate of events.
        self.told = ToldTopics()
        self.fate = Fate.STORED
        self.fates: dict[str, Fate] = {}
        self.problem: str | None = None
        self.overdue_bytes = 0
        self.published = threading.Event()
        self._released = threading.Event()
        self._released.set()
        self._turn = 0

    def hold(self) -> None:
        """From now on, let each publish wait for `release`."""
        self.published.clear()
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    def stored(self, topic: str) -> list[Event]:
        return [event for log in self.logs[topic] for event in log]

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        if topic in GATEWAY_TOPICS:
            return self.told.publish(topic, events)
        self.published.set()
        if not self._released.is_set():
            await asyncio.to_thread(self._released.wait, 10)
        if topic not in self.logs:
            everything, reason = range(len(events)), "no such topic"
            return [Report(Fate.NOT_STORED, everything, reason=reason)]
        self._turn += 1
        reports = []
        for (fate, partition), positions in self._sort(events).items():
            if fate is not Fate.STORED:
                reports.append(Report(fate, positions, reason=f"{fate.value} by the test"))
                continue
            log = self.logs[topic][partition]
            reports.append(Report(fate, positions, partition, len(log)))
            log.extend(events[position] for position in positions)
        return reports

    def meanwhile(self, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(work)

    def post(self, topic: str, events: Sequence[Event], tell: Tell) -> bool:
        publishing = asyncio.ensure_future(self.publish(topic, events))
        publishing.add_done_callback(lambda done: tell(done.result()))
        return True

    async def find(
        self, topic: str, wanted: Sequence[tuple[str, bytes]], *, since_ms: int
    ) -> dict[int, tuple[int, int]]:
        """Search the whole log, as `find_stored` does."""
        assert since_ms > 0
        there = {
            (event.id, event.value): (partition, offset)
            for partition, log in enumerate(self.logs[topic])
            for offset, event in enumerate(log)
        }
        return {place: there[event] for place, event in enumerate(wanted) if event in there}

    def _sort(self, events: Sequence[Event]) -> dict[tuple[Fate, int], list[int]]:
        found: dict[tuple[Fate, int], list[int]] = defaultdict(list)
        for position, event in enumerate(events):
            hashed = self._turn if event.key is None else zlib.crc32(event.key)
            fate = self.fates.get(event.id, self.fate)
            partition = hashed % PARTITION_COUNT if event.partition is None else event.partition
            found[fate, partition].append(position)
        return found
