"""Decides how destinations are set up over HTTP: where a stream's events go, and how.

An address is judged here, so that its owner hears of it at once, and again at each connection,
because names change their addresses. A name that nobody knows yet is taken, with a warning.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.callers import Caller
from gateway.control.destination_secrets import sealed_fields, shown
from gateway.control.requests import ControlRequests, as_json, built
from gateway.problems import Problem
from shared.config.addresses import HostError, judge_host, may_send, read_host
from shared.config.checks import ConfigError
from shared.config.credentials import OAuth2
from shared.config.destination import Destination
from shared.event.topics import destination_id
from shared.runtime.clock import now_ms
from shared.runtime.resolver import NoSuchHostError, Resolve, ResolverDownError, ascii_host
from shared.runtime.secret_box import SecretBox

log = structlog.get_logger()

# A resolver that is up answers within this; the address is judged again at each connection.
_RESOLVE_S = 2.0


class Destinations:
    """The paths of destinations."""

    def __init__(self, requests: ControlRequests, *, box: SecretBox, resolve: Resolve) -> None:
        self._requests = requests
        self._box = box
        self._resolve = resolve

    def routes(self) -> list[Route]:
        """Each path with what it takes."""
        route = self._requests.route
        return [
            route("/v1/streams/{stream}/destinations", GET=("read", self._list)),
            route(
                "/v1/streams/{stream}/destinations/{destination}",
                GET=("read", self._show),
                PUT=("admin", self._put),
                DELETE=("admin", self._delete),
            ),
            route(
                "/v1/streams/{stream}/destinations/{destination}/resume",
                POST=("admin", self._resume),
            ),
        ]

    async def _list(self, request: Request, caller: Caller) -> Response:
        stream = caller.stream(request.path_params["stream"], self._requests.configuration)
        found = self._requests.configuration.destinations_of(stream.name)
        listed = [shown(each) for each in sorted(found, key=lambda each: each.name)]
        return as_json({"destinations": listed})

    async def _show(self, request: Request, caller: Caller) -> Response:
        return as_json(shown(self._found(request, caller)))

    async def _put(self, request: Request, caller: Caller) -> Response:
        stream = caller.stream(request.path_params["stream"], self._requests.configuration)
        name = request.path_params["destination"]
        before = self._requests.configuration.destinations.get(destination_id(stream.name, name))
        fields = await self._requests.body(request)
        wanted: Destination = built(self._read, stream.name, name, fields, before)
        warning = await self._check_target("url", wanted.url)
        if isinstance(wanted.auth, OAuth2):
            warning = await self._check_target("auth.token_url", wanted.auth.token_url) or warning
        await self._store(wanted, caller)
        status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
        return as_json(shown(wanted) | ({"warning": warning} if warning else {}), status)

    async def _resume(self, request: Request, caller: Caller) -> Response:
        """Go on after a pause, a hold or a disabling: a person has looked at it."""
        found = self._found(request, caller)
        wanted = found.resumed(at_ms=now_ms())
        await self._store(wanted, caller)
        return as_json(shown(wanted))

    async def _store(self, wanted: Destination, caller: Caller) -> None:
        await self._requests.change(
            (wanted.config_key, wanted.to_json()),
            is_seen=lambda: self._requests.configuration.destinations.get(wanted.id) == wanted,
        )
        log.info("destination.written", destination=wanted.id, tenant=caller.tenant)

    async def _delete(self, request: Request, caller: Caller) -> Response:
        """Take it off the list: what waits to be tried again becomes dead letters."""
        found = self._found(request, caller)
        await self._requests.change(
            (found.config_key, None),
            is_seen=lambda: found.id not in self._requests.configuration.destinations,
        )
        log.info("destination.removed", destination=found.id, tenant=caller.tenant)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def _found(self, request: Request, caller: Caller) -> Destination:
        stream = caller.stream(request.path_params["stream"], self._requests.configuration)
        name = request.path_params["destination"]
        key = destination_id(stream.name, name)
        found = self._requests.configuration.destinations.get(key)
        if found is None:
            raise Problem(
                "unknown_destination",
                f"GET /v1/streams/{stream.name}/destinations lists the ones there are.",
            )
        return found

    def _read(
        self, stream: str, name: str, given: Mapping[str, Any], before: Destination | None
    ) -> Destination:
        """The destination that a PUT describes; what it does not say is as on the first day."""
        if given.get("name", name) != name or given.get("stream", stream) != stream:
            raise ConfigError("name: name and stream cannot be other than the path's")
        # A PUT of what another one answered; the warning was for its reader.
        rest = {key: value for key, value in given.items() if key != "warning"}
        if before is not None:
            rest.setdefault("resumed_at_ms", before.resumed_at_ms)
        owner = destination_id(stream, name)
        sealed = sealed_fields(rest, before=before, owner=owner, box=self._box)
        wanted = Destination.of({**sealed, "stream": stream, "name": name})
        if urlsplit(wanted.url).username is not None:
            raise ConfigError("url: a user and a password belong into auth, where they are sealed")
        return wanted

    async def _check_target(self, setting: str, url: str) -> str | None:
        """Refuse an address that Hifi may not send to; say what could not be found out."""
        pointer = "/" + setting.replace(".", "/")
        try:
            host = read_host(ascii_host(urlsplit(url).hostname or ""))
        except HostError as error:
            raise Problem("bad_object", f"{setting}: {error}.", pointer=pointer) from error
        refusal = Problem(
            "target_forbidden",
            f"{setting}: Hifi sends to public addresses only"
            + (", and to private ones here; this is neither." if self._allows_private else "."),
            pointer=pointer,
        )
        if judge_host(host) == "never":
            raise refusal
        if not isinstance(host, str):
            addresses = [host]
        else:
            try:
                async with asyncio.timeout(_RESOLVE_S):
                    addresses = list(await self._resolve(host))
            except (NoSuchHostError, ResolverDownError, TimeoutError):
                return f"{setting}: nobody knows the name {host!r} now; events wait until it is."
        if not may_send(addresses, allows_private=self._allows_private):
            raise refusal
        return None

    @property
    def _allows_private(self) -> bool:
        return self._requests.settings.allow_private
