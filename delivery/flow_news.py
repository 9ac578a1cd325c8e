"""Shares news about destinations between this machine and others."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from delivery.flow_store import FlowStore
from delivery.sending import Tell
from shared.config.destination import Destination
from shared.flow.flow import SendLimits
from shared.flow.flow_record import FlowRecord
from shared.flow.sharing import is_sent_to
from shared.retry.routing import route_state
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.state_topic import StateFeed
from shared.runtime.spark.process import SparkProcessSettings

# All machines know within 2 s when one has learned something about a destination. This costs
# nothing while only one machine sends to it.
_NEWS_S = 0.1
# How often to look for news in a destination's file, while other machines send to it too.
_LOOK_MS = 500


async def tell_news(
    settings: SparkProcessSettings, config: ConfigFeed, states: StateFeed, store: Tell
) -> None:
    """Bring other machines' news to the flows of this one, and this one's news to others."""
    news = NewsRound(FlowStore(settings.flows), settings.schedule)
    # In a thread: thousands of files take a while, and a frozen worker may never release its file.
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, "flows")
    while True:
        known = states.flows, config.configuration.destinations
        if records := await loop.run_in_executor(thread, news.go, *known):
            # If this fails, the next record says the same.
            with suppress(*AWAY):
                await store([route_state(name, each.to_json()) for name, each in records])
        await asyncio.sleep(_NEWS_S)


@dataclass(slots=True)
class NewsRound:
    """Exchanges news between a machine's flows and other machines', even while tasks wait.

    Destinations that only one machine sends to cost nothing.
    """

    store: FlowStore
    schedule: RetrySchedule
    # The last record given to each destination's file, and when to look into it for news again.
    _heard: dict[str, FlowRecord] = field(default_factory=dict)
    _look_at_ms: dict[str, int] = field(default_factory=dict)
    # The flows at the last look, and those of their destinations that other machines send to.
    _seen: Mapping[str, FlowRecord] = field(default_factory=dict)
    _shared: list[str] = field(default_factory=list)
    # Destinations that nobody sends to here, with the last write times of their files.
    _asleep: dict[str, int] = field(default_factory=dict)

    def go(
        self, flows: Mapping[str, FlowRecord], destinations: Mapping[str, Destination]
    ) -> list[tuple[str, FlowRecord]]:
        """Bring the state topic's news to the files; return the news for others."""
        self.store.published, at_ms = flows, now_ms()
        news = []
        if flows is not self._seen:
            # Each new record replaces the whole mapping.
            self._seen = flows
            self._shared = [name for name, each in flows.items() if each.flow.neighbours.others]
        for name in self._shared:
            record, to = flows[name], destinations.get(name)
            if to is None:
                continue
            is_new = self._heard.get(name) is not record
            if is_new or not 0 <= self._look_at_ms[name] - at_ms <= _LOOK_MS:
                self._heard[name], self._look_at_ms[name] = record, at_ms + _LOOK_MS
                # A full disk, or a missing file, harms only this destination.
                with suppress(OSError):
                    if ours := self._told(to, at_ms):
                        news.append((name, ours))
        return news

    def _told(self, to: Destination, at_ms: int) -> FlowRecord | None:
        path = self.store.path(to)
        if not path.exists() or self._asleep.get(to.id) == path.stat().st_mtime_ns:
            return None
        with self.store.lock(SendLimits(to, self.schedule), now_ms=at_ms) as locked:
            record = locked.to_publish()
            has_left = not locked.record.flow.neighbours.mine.wants
            is_asleep = has_left and not is_sent_to(locked.flow.tasks, now_ms=at_ms)
        self._asleep[to.id] = path.stat().st_mtime_ns if is_asleep else 0
        return record
