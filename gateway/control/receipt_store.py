"""Where receipts are: how the route finds a request, and what is said of its events."""

from collections.abc import Collection
from functools import partial
from typing import Protocol

from shared.event.record import Origin
from shared.proof.acked import AckedRequest
from shared.proof.trail import Trail
from shared.runtime.kafka.event_search import find_request, find_trail


class ReceiptStore(Protocol):
    """Where the ledger is, and all that is said of events."""

    async def request(self, request_id: str, *, since_ms: int, wait_s: float) -> AckedRequest:
        """What the ledger has of a request, waiting for it a little."""

    async def trail(
        self, origins: Collection[Origin], *, since_ms: int, destination_ids: Collection[str]
    ) -> Trail:
        """What is said of events since a time."""


class KafkaReceipts:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.request = partial(find_request, bootstrap_servers)
        self.trail = partial(find_trail, bootstrap_servers)
