"""Keeps a gateway process in touch with all others, through a topic of Kafka."""

import asyncio
from functools import partial

from gateway.fleet.claims import Claims
from gateway.idempotency import ENTRY_BYTES
from gateway.publish.publisher import Publisher
from gateway.settings import Settings
from shared.event.topics import REQUESTS, REQUESTS_RETENTION_MS
from shared.runtime.kafka.event_search import find_stored
from shared.runtime.kafka.tail import Tail

# Of each key there is a claim and how it ended.
_RECORDS_OF_KEY = 2


class Peers:
    """What all gateway processes know together: the keys that were used."""

    def __init__(self, settings: Settings, publisher: Publisher) -> None:
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

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to listen."""
        return [group.create_task(self._requests.run(self.claims.take))]
