"""Tells other machines what this one learns of destinations, and this one what they learn."""

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

# All know within 2 s what one machine has learned of a destination; and this costs nothing while
# only one sends to it.
_NEWS_S = 0.1
# While others send to a destination too, its file may have something to tell so often.
_LOOK_MS = 500


async def tell_news(
    settings: SparkProcessSettings, config: ConfigFeed, states: StateFeed, store: Tell
) -> None:
    """Bring news of flows from other machines to this one's, and theirs to others."""
    news = NewsRound(FlowStore(settings.flows), settings.schedule)
    # Thousands of files take a while, and one that a frozen worker holds takes for ever.
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, "flows")
    while True:
        known = states.flows, config.configuration.destinations
        if told := await loop.run_in_executor(thread, news.go, *known):
            # Else what comes next says it as well.
            with suppress(*AWAY):
                await store([route_state(name, each.to_json()) for name, each in told])
        await asyncio.sleep(_NEWS_S)


@dataclass(slots=True)
class NewsRound:
    """Lets a machine's flows hear of other machines', and these of them, whatever tasks wait for.

    Destinations to which only one machine sends cost nothing.
    """

    store: FlowStore
    schedule: RetrySchedule
    # What each destination's file has heard, and when it is looked at again, as it may have news.
    _heard: dict[str, FlowRecord] = field(default_factory=dict)
    _look_at_ms: dict[str, int] = field(default_factory=dict)
    # Which flows were looked at last, and to whom of them others send, too.
    _seen: Mapping[str, FlowRecord] = field(default_factory=dict)
    _shared: list[str] = field(default_factory=list)
    # To whom nobody sends here: when their files were written last.
    _asleep: dict[str, int] = field(default_factory=dict)

    def go(
        self, flows: Mapping[str, FlowRecord], destinations: Mapping[str, Destination]
    ) -> list[tuple[str, FlowRecord]]:
        """Tell the files what the state topic says; returns what others should hear."""
        self.store.published, at_ms = flows, now_ms()
        news = []
        if flows is not self._seen:
            # Each word that comes makes them anew.
            self._seen = flows
            self._shared = [name for name, each in flows.items() if each.flow.neighbours.others]
        for name in self._shared:
            record, to = flows[name], destinations.get(name)
            if to is None:
                continue
            is_new = self._heard.get(name) is not record
            if is_new or not 0 <= self._look_at_ms[name] - at_ms <= _LOOK_MS:
                self._heard[name], self._look_at_ms[name] = record, at_ms + _LOOK_MS
                # A disk that is full, or a file that went: of this destination alone.
                with suppress(OSError):
                    if told := self._told(to, at_ms):
                        news.append((name, told))
        return news

    def _told(self, to: Destination, at_ms: int) -> FlowRecord | None:
        path = self.store.path(to)
        if not path.exists() or self._asleep.get(to.id) == path.stat().st_mtime_ns:
            return None
        with self.store.hold(SendLimits(to, self.schedule), now_ms=at_ms) as held:
            told = held.to_publish()
            has_left = not held.record.flow.neighbours.mine.wants
            is_asleep = has_left and not is_sent_to(held.flow.tasks, now_ms=at_ms)
        self._asleep[to.id] = path.stat().st_mtime_ns if is_asleep else 0
        return told
