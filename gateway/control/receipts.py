"""Decides how a request is followed: by the id of its answer to each event, place and destination.

The ledger says which events it was; receipts, retry tiers and dead letters what became of them.
What could not be read in time is told as unknown, and never as not being there.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.callers import Caller
from gateway.control.queries import check_names, count_of, text_in, time_ms_in, unavailable
from gateway.control.requests import ControlRequests, as_json
from gateway.control.whereabouts import ByDestination, counts_of, whereabouts
from gateway.problems import Problem
from shared.config.configuration import Stream
from shared.event.record import Origin
from shared.event.times import DAY_MS, MINUTE_MS, rfc3339
from shared.event.topics import ACKED_RETENTION_MS, stream_and_name, stream_of
from shared.proof.acked import AckedRequest, request_time_ms
from shared.proof.trail import Trail
from shared.retry.dead_letter import Place
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.event_search import find_request, find_trail
from shared.runtime.setup_error import KafkaUnavailableError

# Events of a page; with three destinations each, half a megabyte.
_COUNT_DEFAULT, COUNT_MAX = 1_000, 5_000
_QUERY = {"event", "limit", "after", "from"}
# An answer waits so long for a ledger that is written each second, and Kafka's report on it.
_WAIT_S = 2.5
# Until then an id that is nowhere may still be on its way: a body takes 30 s to come at most,
# Kafka's report 10 s, and the ledger its second.
_YOUNG_MS = MINUTE_MS
# Each takes a connection of its own to Kafka, and reads as fast as it can. One for a tenant, so
# that nobody holds them all.
_AT_ONCE = 2
# Longer than one takes, so that a third caller has a chance.
_TURN_S_MAX = 10.0
# Kafka deletes whole segments, so that rows outlive their retention by as long as those take.
_EXPIRED_MS = ACKED_RETENTION_MS + DAY_MS
_SOON = ((b"retry-after", b"1"),)


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
        self._bootstrap_servers = bootstrap_servers

    async def request(self, request_id: str, *, since_ms: int, wait_s: float) -> AckedRequest:
        return await find_request(
            self._bootstrap_servers, request_id, since_ms=since_ms, wait_s=wait_s
        )

    async def trail(
        self, origins: Collection[Origin], *, since_ms: int, destination_ids: Collection[str]
    ) -> Trail:
        return await find_trail(
            self._bootstrap_servers, origins, since_ms=since_ms, destination_ids=destination_ids
        )


class ReceiptPaths:
    """The path of receipts."""

    def __init__(
        self, requests: ControlRequests, store: ReceiptStore, schedule: RetrySchedule
    ) -> None:
        self._requests = requests
        self._store = store
        self._schedule = schedule
        self._turn = asyncio.Semaphore(_AT_ONCE)
        # Of the tenants who search or wait to; forgotten with the last of their requests.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def routes(self) -> list[Route]:
        return [self._requests.route("/v1/receipts/{request_id}", GET=("read", self._show))]

    async def _show(self, request: Request, caller: Caller) -> Response:
        request_id = request.path_params["request_id"]
        query = dict(request.query_params)
        came_ms = request_time_ms(request_id)
        if came_ms is None:
            raise Problem("bad_request_id", "It is not the request_id of an answer: a UUID.")
        try:
            check_names(query, _QUERY)
            event_id, since_ms = text_in(query, "event"), time_ms_in(query, "from")
            after = Place.of(query["after"]) if "after" in query else Place(0, 0)
            count_max = count_of(query.get("limit", _COUNT_DEFAULT), high=COUNT_MAX)
        except ValueError as error:
            raise Problem("bad_query", f"{error}.") from error
        async with self._one_turn(caller.tenant):
            found = await self._find(request_id, came_ms, since_ms=since_ms)
            stream = self._stream(found, caller)
            trail, told = await self._follow(found, stream)
        origins = _origins(found)
        wanted = [
            (place, origin, event)
            for place, origin, event in origins
            if event_id in {None, event} and place >= after
        ]
        page, more = wanted[:count_max], wanted[count_max:]
        return as_json(
            {
                "request_id": request_id,
                "stream": stream.name,
                "accepted_at_ms": found.accepted_at_ms,
                "count": max(found.count, len(origins)),
                "is_complete": found.is_complete and trail.is_whole,
                "destinations": {_name(who): counts_of(events) for who, events in told.items()},
                "events": [_event(told, *one) for one in page],
                "next": str(more[0][0]) if more else None,
            }
        )

    async def _find(self, request_id: str, came_ms: int, *, since_ms: int | None) -> AckedRequest:
        """The request's events by the ledger; Problem when there are none, or none so far."""
        age_ms = now_ms() - came_ms
        is_young = abs(age_ms) < _YOUNG_MS
        if age_ms > _EXPIRED_MS or age_ms < -_YOUNG_MS:
            raise _unknown()
        # Before it came, nothing was written of it.
        since_ms = max(came_ms, since_ms or 0)
        found = await self._store.request(
            request_id, since_ms=since_ms, wait_s=_WAIT_S if is_young else 0.0
        )
        if found.ids:
            return found
        if found.read_until_ms is not None:
            until = rfc3339(found.read_until_ms)
            detail = f"It is not in the ledger up to {until}: ask again with ?from={until}."
            raise Problem("search_unfinished", detail, headers=_SOON, members={"read_until": until})
        if is_young:
            detail = "Ask again: what was just accepted is in the ledger within a second or two."
            raise Problem("receipt_not_yet", detail, headers=_SOON)
        raise _unknown()

    def _stream(self, found: AckedRequest, caller: Caller) -> Stream:
        """The stream it was sent to; what is another tenant's is not there for the caller."""
        try:
            return caller.stream(stream_of(found.topic), self._requests.configuration)
        except Problem as problem:
            if problem.code == "unknown_stream":
                raise _unknown() from problem
            raise

    async def _follow(self, found: AckedRequest, stream: Stream) -> tuple[Trail, ByDestination]:
        destinations = self._requests.configuration.destinations_of(stream.name)
        names = {one.id for one in destinations}
        origins = [origin for _, origin, _ in _origins(found)]
        trail = await self._store.trail(
            origins, since_ms=found.accepted_at_ms, destination_ids=names
        )
        # Thousands of events with dozens of receipts each are a second of work: others' requests
        # go on beside it.
        told = await asyncio.to_thread(whereabouts, trail, origins, names, self._schedule)
        return trail, told

    @asynccontextmanager
    async def _one_turn(self, tenant: str) -> AsyncIterator[None]:
        """Few at a time, and what Kafka does not answer told as that."""
        own_turn = self._turns.setdefault(tenant, asyncio.Lock())
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_TURN_S_MAX):
                    await held.enter_async_context(own_turn)
                    await held.enter_async_context(self._turn)
            except TimeoutError as error:
                raise Problem(
                    "overloaded", "Others are searching; ask again.", headers=_SOON
                ) from error
            try:
                yield
            except KafkaUnavailableError as error:
                raise unavailable(error) from error


def _unknown() -> Problem:
    return Problem(
        "unknown_receipt",
        "No request of this id has brought events: it is wrong, its events were all refused or are"
        " on a gateway's disk only (202), or it is older than the ledger.",
    )


def _origins(found: AckedRequest) -> list[tuple[Place, Origin, str]]:
    """Each event of a request in the order of its places, with its id."""
    return [
        (Place(partition, offset), Origin(found.topic, partition, offset), event_id)
        for (partition, offset), event_id in sorted(found.ids.items())
    ]


def _event(told: ByDestination, place: Place, origin: Origin, event_id: str) -> dict[str, Any]:
    return {
        "id": event_id,
        "partition": place.partition,
        "offset": place.offset,
        "destinations": {_name(who): events[origin].fields() for who, events in told.items()},
    }


def _name(destination: str) -> str:
    """What a destination is called within its stream."""
    return stream_and_name(destination)[1]
