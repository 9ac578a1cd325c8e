"""Answers the POSTs: signing in and out, re-drive, revoking a key, resuming, showing an event.

Each checks the session, that the form is from that session, the scope; then it writes down who did
it, and only then asks the gateway to do it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from observe.console.authentication import COOKIE, form_of, local_path, require_admin
from observe.console.control_session import control_path
from observe.console.page_request import PageRequest
from observe.console.pages.event_page import event_page
from observe.console.pages.plain_pages import sign_in_page
from observe.console.pages.resume_page import PATH as RESUME
from observe.console.parts.layout import render
from observe.console.sources import Sources

log = structlog.get_logger()


# 2 s in all, as long as a change takes to come back at the worst; then the page is shown as it is.
_LOOK_S = 0.05
_LOOKS_MAX = 40


class Posts:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def routes(self) -> list[Route]:
        return [
            Route("/sign-in", self.sign_in, methods=["POST"]),
            self._route("/sign-out", self.sign_out, for_admins=False),
            self._route("/events/payload", self.show_payload),
            self._route("/dead/redrive", self.redrive),
            self._route("/keys/revoke", self.revoke),
            self._route(RESUME, self.resume),
        ]

    async def sign_in(self, request: Request) -> Response:
        fields = await form_of(request)
        session, _ = self._sources.authentication.stranger(request)
        next_path = local_path(fields.get("next", "/"))
        self._sources.authentication.check_post(request, session, fields)
        try:
            cookie = self._sources.authentication.try_key(fields.get("key", ""))
        except HTTPException as refusal:
            csrf = self._sources.authentication.csrf(session)
            page = sign_in_page(csrf=csrf, next_path=next_path, problem=refusal.detail)
            return HTMLResponse(page, status_code=refusal.status_code)
        response = RedirectResponse(next_path, status_code=303)
        self._sources.authentication.set_cookie(response, cookie)
        return response

    async def sign_out(self, _: PageRequest) -> Response:
        response = RedirectResponse("/sign-in", status_code=303)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def show_payload(self, asked: PageRequest) -> Response:
        stream, event_id = asked.field("stream"), asked.fields.get("id", "")
        if stream not in asked.streams:
            raise HTTPException(404, "There is no such stream, or it is not yours.")
        log.info("payload.shown", key_id=asked.viewer.key_id, stream=stream, event_id=event_id)
        page = event_page(
            asked.streams,
            stream=stream,
            event_id=event_id,
            result=await self._sources.events.find(stream, event_id),
            around=asked.identity.around,
            may_reveal=True,
            shows_payload=True,
            schedule=self._sources.schedule,
        )
        return HTMLResponse(render(page, asked.identity.around))

    async def redrive(self, asked: PageRequest) -> Response:
        filters, letters = asked.filters, await asked.letters()
        if asked.field("confirmed") != str(letters.redrivable) or not letters.is_whole:
            # More have died since, or somebody else was faster: nobody re-drives the unseen.
            return RedirectResponse(f"/dead/redrive?{urlencode(filters)}", status_code=303)
        log.info(
            "dead_letters.redriven",
            key_id=asked.viewer.key_id,
            filters=filters,
            count=letters.redrivable,
        )
        sent = await asked.control.redrive(filters, streams=letters.redrivable_streams)
        return RedirectResponse(f"/dead?{urlencode({**filters, 'sent': sent})}", status_code=303)

    async def revoke(self, asked: PageRequest) -> Response:
        key = asked.key
        if key.id == asked.viewer.key_id:
            raise HTTPException(403, "A key cannot revoke itself: sign in with another.")
        log.info("key.revoked", key_id=asked.viewer.key_id, revoked=key.id)
        await asked.control.change("DELETE", "keys", key.id, version=asked.field("version"))
        await self._until(lambda: key.id not in self._sources.context().configuration.keys)
        return RedirectResponse("/keys?done=revoked", status_code=303)

    async def resume(self, asked: PageRequest) -> Response:
        destination = asked.destination
        log.info("destination.resumed", key_id=asked.viewer.key_id, destination=destination.id)
        path, version = control_path(destination), asked.field("version")
        await asked.control.change("POST", *path, action="resume", version=version)
        await self._until(lambda: self._sources.context().configured(destination.id) != destination)
        return RedirectResponse(f"/streams/{destination.id}", status_code=303)

    async def _until(self, is_seen: Callable[[], bool]) -> None:
        """Wait for our own feed, so that the next page shows the change."""
        for _ in range(_LOOKS_MAX):
            if is_seen():
                return
            await asyncio.sleep(_LOOK_S)

    def _route(
        self,
        path: str,
        act: Callable[[PageRequest], Awaitable[Response]],
        *,
        for_admins: bool = True,
    ) -> Route:
        async def serve(request: Request) -> Response:
            authentication = self._sources.authentication
            identity = authentication.identify(request)
            fields = await form_of(request)
            authentication.check_post(request, identity.session, fields)
            if for_admins:
                require_admin(identity.viewer)
            return await act(self._sources.page_request(identity, fields))

        return Route(path, serve, methods=["POST"])
