"""Finds requests, receipts and events in Kafka or in an observer's index."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Protocol
from urllib.parse import urlencode, urlsplit

import msgspec

from shared.event.places import PLACES_PATH, Places
from shared.event.record import Origin
from shared.proof.acked import AckedRequest
from shared.proof.restored import Restores
from shared.proof.trail import Trail
from shared.runtime.http_client import HttpClient, NoHttpAnswerError
from shared.runtime.kafka.lookup.event_search import (
    SEARCH_S_MAX,
    find_request,
    find_trail,
)
from shared.runtime.kafka.lookup.made_events import MadeEvents, find_made
from shared.runtime.kafka.lookup.restores import find_restores

# An index answers in milliseconds; reading the log instead takes seconds.
_PLACES_WITHIN_S = 1.0


class ReceiptStore(Protocol):
    """The source of the ledger's rows, receipts and records of events."""

    async def request(self, request_id: str, *, since_ms: int, wait_s: float) -> AckedRequest:
        """Return the ledger's rows of a request; wait for them for `wait_s`."""

    async def trail(
        self,
        origins: Collection[Origin],
        *,
        since_ms: int,
        destination_ids: Collection[str],
        search_s: float = SEARCH_S_MAX,
    ) -> Trail:
        """Return all receipts and records of events since a time."""

    async def made(
        self,
        origins: Collection[Origin],
        pipeline: str,
        stream: str,
        between_ms: tuple[int, int],
        *,
        count_max: int,
        search_s: float = SEARCH_S_MAX,
    ) -> MadeEvents:
        """Return the events that a pipeline made from these, in a stream that it writes."""

    async def restores(self, *, search_s: float = SEARCH_S_MAX) -> Restores | None:
        """Return the reports of restores; None if they could not be read in time."""


class KafkaReceipts:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.request = partial(find_request, bootstrap_servers)
        self.trail = partial(find_trail, bootstrap_servers)
        self.made = partial(find_made, bootstrap_servers)
        self.restores = partial(find_restores, bootstrap_servers, search_s=SEARCH_S_MAX)


class EventPlaces:
    """Asks an observer's index for events' places, if an observer is set."""

    def __init__(self, observe: str) -> None:
        self._observe = observe

    @property
    def can_be_asked(self) -> bool:
        return bool(urlsplit(self._observe).hostname)

    async def of(self, topic: str, *, event_id: str | None, key: str | None) -> Places | None:
        """Return places by id, or else by ordering key; None if the observer does not answer."""
        name = {"key": key or ""} if event_id is None else {"id": event_id}
        return await asyncio.to_thread(self._ask, {"topic": topic, **name})

    def _ask(self, query: dict[str, str]) -> Places | None:
        try:
            with HttpClient(self._observe, timeout_s=_PLACES_WITHIN_S) as observer:
                answer = observer.ask("GET", f"{PLACES_PATH}?{urlencode(query)}")
            return msgspec.json.decode(answer.content, type=Places)
        except (NoHttpAnswerError, msgspec.DecodeError):
            return None
