"""Decides how dead letters are listed and sent again over HTTP: those of one stream, in bounds.

A request looks at so many records and works for so long, then says where to go on; a re-drive that
is called again does nothing twice.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.callers import Caller
from gateway.control.queries import check_names, count_of, flag_of, text_in, time_ms_in, unavailable
from gateway.control.requests import ControlRequests, as_json, built
from gateway.problems import Problem
from shared.retry.dead_letter import DeadLetterFilter, Place, payload_of, story_of
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.dead_letters import (
    DeadLetterPage,
    OvertakenError,
    Redriven,
    count_redrive,
    open_dead_letters,
    redrive,
)
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# A page of a list; with their payloads a thousand events of a few KB are some MB.
_COUNT_DEFAULT, COUNT_MAX = 100, 1_000
# Some 50,000 records are read in a second (measured with 300 bytes each).
_SCAN_MAX = 50_000
# A re-drive answers before the 30 s after which clients commonly give up.
_REDRIVE_S_MAX = 20.0
_RATE_DEFAULT, _RATE_MAX = 100.0, 10_000.0
# Each takes a connection of its own to Kafka.
_AT_ONCE = 2
_QUERY = {"destination", "reason", "from", "to", "id", "limit", "after", "payload"}
_FIELDS = {"destination", "reason", "from", "to", "id", "limit", "rate_per_s", "dry_run"}


class DeadLetterStore(Protocol):
    """Where dead letters rest."""

    async def page(
        self, wanted: DeadLetterFilter, *, after: Place | None, count_max: int
    ) -> tuple[DeadLetterPage, set[Place]]:
        """Some of them, and which have been sent again."""

    async def count(self, wanted: DeadLetterFilter, *, count_max: int | None) -> Redriven:
        """What a re-drive would come to."""

    async def redrive(
        self, wanted: DeadLetterFilter, *, redrive_id: str, rate_per_s: float, count_max: int | None
    ) -> Redriven:
        """Send them again."""


class KafkaDeadLetters:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    async def page(
        self, wanted: DeadLetterFilter, *, after: Place | None, count_max: int
    ) -> tuple[DeadLetterPage, set[Place]]:
        async with open_dead_letters(self._bootstrap_servers) as letters:
            page = await letters.page(wanted, after=after, count_max=count_max, scan_max=_SCAN_MAX)
            return page, await letters.redriven()

    async def count(self, wanted: DeadLetterFilter, *, count_max: int | None) -> Redriven:
        return await count_redrive(self._bootstrap_servers, wanted, count_max=count_max)

    async def redrive(
        self, wanted: DeadLetterFilter, *, redrive_id: str, rate_per_s: float, count_max: int | None
    ) -> Redriven:
        return await redrive(
            self._bootstrap_servers,
            wanted,
            redrive_id=redrive_id,
            schedule=RetrySchedule(),
            rate_per_s=rate_per_s,
            count_max=count_max,
            duration_s_max=_REDRIVE_S_MAX,
        )


class DeadLetterPaths:
    """The paths of dead letters."""

    def __init__(self, requests: ControlRequests, store: DeadLetterStore) -> None:
        self._requests = requests
        self._store = store
        self._turn = asyncio.Semaphore(_AT_ONCE)

    def routes(self) -> list[Route]:
        """Each path with what it takes."""
        route = self._requests.route
        return [
            route("/v1/streams/{stream}/dead-letters", GET=("read", self._list)),
            route("/v1/streams/{stream}/dead-letters:redrive", POST=("admin", self._redrive)),
        ]

    async def _list(self, request: Request, caller: Caller) -> Response:
        stream = caller.stream(request.path_params["stream"], self._requests.configuration)
        query = dict(request.query_params)
        try:
            check_names(query, _QUERY)
            wanted = _wanted(stream.name, query)
            after = Place.of(query["after"]) if "after" in query else None
            count_max = count_of(query.get("limit", _COUNT_DEFAULT), high=COUNT_MAX)
            with_payload = flag_of("payload", query.get("payload", "false"))
        except ValueError as error:
            raise Problem("bad_query", f"{error}.") from error
        if with_payload:
            # Who may only send may see that something died, but not what others have sent.
            caller.check("read")
        async with self._turn:
            try:
                page, marked = await self._store.page(wanted, after=after, count_max=count_max)
            except KafkaUnavailableError as error:
                raise unavailable(error) from error
        shown = [
            {
                **story_of(letter),
                "redriven": letter.place in marked,
                **(payload_of(letter) if with_payload else {}),
            }
            for letter in page.letters
        ]
        return as_json({"dead_letters": shown, "next": str(page.next) if page.next else None})

    async def _redrive(self, request: Request, caller: Caller) -> Response:
        stream = caller.stream(request.path_params["stream"], self._requests.configuration)
        fields = await self._requests.body(request)
        wanted, count_max, rate_per_s, is_dry = built(_read_order, stream.name, fields)
        redrive_id = None if is_dry else uuid.uuid4().hex
        async with self._turn:
            try:
                if redrive_id is None:
                    found = await self._store.count(wanted, count_max=count_max)
                else:
                    found = await self._store.redrive(
                        wanted, redrive_id=redrive_id, rate_per_s=rate_per_s, count_max=count_max
                    )
            except OvertakenError as error:
                raise Problem("redrive_overtaken", str(error)) from error
            except KafkaUnavailableError as error:
                raise unavailable(error) from error
        if redrive_id is not None:
            log.info(
                "dead_letters.redriven",
                stream=stream.name,
                tenant=caller.tenant,
                redrive=redrive_id,
                count=found.count,
            )
        return as_json(
            {
                "redrive_id": redrive_id,
                "count": found.count,
                "already": found.already,
                "malformed": found.malformed,
                "is_complete": found.next is None,
            }
        )


def _read_order(
    stream: str, fields: Mapping[str, Any]
) -> tuple[DeadLetterFilter, int | None, float, bool]:
    """What a POST asks to be sent again, and how."""
    check_names(fields, _FIELDS)
    limit = fields.get("limit")
    rate = fields.get("rate_per_s", _RATE_DEFAULT)
    if type(rate) not in {int, float} or not 0 < rate <= _RATE_MAX:
        raise ValueError(f"rate_per_s: {rate!r} is not above 0 and at most {_RATE_MAX:g}")
    is_dry = fields.get("dry_run", False)
    if type(is_dry) is not bool:
        raise ValueError(f"dry_run: {is_dry!r} is not true or false")
    count_max = None if limit is None else count_of(limit, high=10**9)
    return _wanted(stream, fields), count_max, float(rate), is_dry


def _wanted(stream: str, given: Mapping[str, Any]) -> DeadLetterFilter:
    return DeadLetterFilter(
        stream=stream,
        destination=text_in(given, "destination"),
        reason=text_in(given, "reason"),
        from_ms=time_ms_in(given, "from"),
        to_ms=time_ms_in(given, "to"),
        event_id=text_in(given, "id"),
    )
