"""Answers the POSTs: signing in and out, re-drive, revoking a key, resuming, showing an event.

Each checks the session, that the form is from that session, the scope; then it writes down who did
it, and only then does it.
"""

import asyncio
from typing import Protocol
from urllib.parse import urlencode

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from observe.console.authentication import COOKIE, PageRequest, form_of, local_path
from observe.console.pages.event_page import event_page
from observe.console.pages.plain_pages import sign_in_page
from observe.console.pages.resume_page import PATH as RESUME
from observe.console.parts.layout import render, render_bare
from observe.console.sources import Sources
from observe.console.views import (
    destination_of,
    key_of,
    require_admin,
    stream_names,
    wanted_of,
)
from shared.config.destination import Destination

log = structlog.get_logger()


# 2 s in all, as long as a change takes to come back at the worst; then the page is shown as it is.
_LOOK_S = 0.05
_LOOKS_MAX = 40


class ConfigWriter(Protocol):
    """Changes the configuration; KafkaUnavailableError when Kafka does not take it."""

    async def remove(self, config_key: bytes) -> None: ...

    async def store(self, destination: Destination) -> None: ...


class Posts:
    def __init__(self, sources: Sources, *, writer: ConfigWriter) -> None:
        self._sources = sources
        self._writer = writer

    def routes(self) -> list[Route]:
        return [
            Route("/sign-in", self.sign_in, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
            Route("/events/payload", self.show_payload, methods=["POST"]),
            Route("/dead/redrive", self.redrive, methods=["POST"]),
            Route("/keys/revoke", self.revoke, methods=["POST"]),
            Route(RESUME, self.resume, methods=["POST"]),
        ]

    async def sign_in(self, request: Request) -> Response:
        fields = await form_of(request)
        session, _ = self._sources.doors.stranger(request)
        next_path = local_path(fields.get("next", "/"))
        self._sources.doors.check_post(request, session, fields)
        try:
            cookie = self._sources.doors.try_key(fields.get("key", ""))
        except HTTPException as refusal:
            form = sign_in_page(
                csrf=self._sources.doors.csrf(session), next_path=next_path, problem=refusal.detail
            )
            return HTMLResponse(render_bare("Sign in", form), status_code=refusal.status_code)
        response = RedirectResponse(next_path, status_code=303)
        self._sources.doors.set_cookie(response, cookie)
        return response

    async def sign_out(self, request: Request) -> Response:
        await self._checked(request)
        response = RedirectResponse("/sign-in", status_code=303)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def show_payload(self, request: Request) -> Response:
        visit, fields = await self._checked(request)
        require_admin(visit.viewer)
        names = stream_names(self._sources.scene(), visit.viewer)
        stream, event_id = fields.get("stream", ""), fields.get("id", "")
        if stream not in names:
            raise HTTPException(404, "There is no such stream, or it is not yours.")
        log.info("payload.shown", key_id=visit.viewer.key_id, stream=stream, event_id=event_id)
        result = await self._sources.events.find(stream, event_id)
        page = event_page(
            names,
            stream=stream,
            event_id=event_id,
            result=result,
            around=visit.around,
            may_reveal=True,
            shows_payload=True,
            schedule=self._sources.schedule,
        )
        return HTMLResponse(render(page, visit.around))

    async def redrive(self, request: Request) -> Response:
        visit, fields = await self._checked(request)
        require_admin(visit.viewer)
        names = frozenset(stream_names(self._sources.scene(), visit.viewer))
        wanted = wanted_of(fields)
        counted = fields.get("confirmed", "")
        letters = await self._sources.dead.look(wanted, streams=names)
        if counted != str(letters.redrivable) or not letters.is_whole:
            # More have died since, or somebody else was faster: nobody re-drives the unseen.
            return RedirectResponse(f"/dead/redrive?{wanted.query}", status_code=303)
        log.info(
            "dead_letters.redriven",
            key_id=visit.viewer.key_id,
            filters=wanted.fields(),
            count=letters.redrivable,
        )
        sent = await self._sources.dead.redrive(wanted, streams=names)
        query = urlencode({**wanted.fields(), "sent": sent}, errors="replace")
        return RedirectResponse(f"/dead?{query}", status_code=303)

    async def revoke(self, request: Request) -> Response:
        visit, fields = await self._checked(request)
        require_admin(visit.viewer)
        key = key_of(self._sources.scene(), visit.viewer, fields.get("id", ""))
        if key.id == visit.viewer.key_id:
            raise HTTPException(403, "A key cannot revoke itself: sign in with another.")
        log.info("key.revoked", key_id=visit.viewer.key_id, revoked=key.id)
        await self._writer.remove(key.config_key)
        return RedirectResponse("/keys?done=revoked", status_code=303)

    async def resume(self, request: Request) -> Response:
        visit, fields = await self._checked(request)
        require_admin(visit.viewer)
        found = destination_of(self._sources.scene(), visit.viewer, fields)
        log.info("destination.resumed", key_id=visit.viewer.key_id, destination=found.id)
        wanted = found.resumed(at_ms=self._sources.now_ms())
        await self._writer.store(wanted)
        for _ in range(_LOOKS_MAX):
            if self._sources.scene().configured(found.id) != found:
                break
            await asyncio.sleep(_LOOK_S)
        return RedirectResponse(f"/streams/{found.id}", status_code=303)

    async def _checked(self, request: Request) -> tuple[PageRequest, dict[str, str]]:
        visit = self._sources.doors.visit(request)
        fields = await form_of(request)
        self._sources.doors.check_post(request, visit.session, fields)
        return visit, fields
