"""Exchanges news through Kafka with other gateways, observers and pipelines services."""

import asyncio
from functools import partial

from gateway.callers import ConfigSource
from gateway.fleet.claims import Claims
from gateway.fleet.idempotency import ENTRY_BYTES
from gateway.fleet.key_uses import KeyUses
from gateway.fleet.share_news import QuotaNews
from gateway.fleet.shares import FORGET_MS
from gateway.fleet.trial_news import TrialNews
from gateway.publish.publisher import Publisher
from gateway.settings import Settings
from shared.event.topics import (
    CHANGES_RETENTION_MS,
    REQUESTS,
    REQUESTS_RETENTION_MS,
    SHARES,
    TRIALS,
    USES,
)
from shared.runtime.health import kept_up
from shared.runtime.kafka.lookup.event_search import find_stored
from shared.runtime.kafka.tail import Tail

# A key has two records: its claim, and how its request ended.
_RECORDS_OF_KEY = 2
# A starting process reads the newest shares of this many gateway processes.
_SHARES_READ_MAX = 10_000
# Read all records, as the topic is compacted.
_USES_READ_MAX = 2**62


class Peers:
    """The shared knowledge of all gateways: Idempotency-Keys, quota shares, uses of API keys."""

    def __init__(self, settings: Settings, publisher: Publisher, config: ConfigSource) -> None:
        servers = settings.bootstrap_servers
        self.claims = Claims(
            publisher,
            bytes_max=settings.idempotency_bytes_max,
            deadline_s=settings.ack_deadline_s,
            search=partial(find_stored, servers),
        )
        self._requests = Tail(
            servers,
            REQUESTS,
            back_ms=REQUESTS_RETENTION_MS,
            records_max=_RECORDS_OF_KEY * settings.idempotency_bytes_max // ENTRY_BYTES,
        )
        self._news = QuotaNews(
            publisher,
            has_quotas=lambda: any(each.rates for each in config.configuration.tenants.values()),
        )
        self.quotas = self._news.quotas
        self._shares = Tail(servers, SHARES, back_ms=FORGET_MS, records_max=_SHARES_READ_MAX)
        self.uses = KeyUses(publisher)
        self._told_uses = Tail(
            servers, USES, back_ms=CHANGES_RETENTION_MS, records_max=_USES_READ_MAX
        )
        self.trials = TrialNews(publisher)
        self._told_trials = Tail(servers, TRIALS, back_ms=0, records_max=1)

    async def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start to read and publish; return once the other processes' shares are known."""
        tasks = [
            group.create_task(self._requests.run(self.claims.take)),
            group.create_task(self._shares.run(self._news.take)),
            group.create_task(self._told_uses.run(self.uses.take)),
            group.create_task(kept_up(self.uses.run, name="uses of keys")),
            group.create_task(self._told_trials.run(self.trials.take)),
        ]
        await self._news.join()
        return [*tasks, group.create_task(kept_up(self._news.run, name="shares"))]

    async def leave(self) -> None:
        """Release this process's shares, and publish the key uses not known to others yet."""
        await self._news.leave()
        await self.uses.tell()
