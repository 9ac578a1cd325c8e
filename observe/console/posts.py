"""Does what people ask for: re-drive, revoking a key, resuming, showing an event, signing out.

The route has checked the session, that the form is from that session, and the scope; here it is
written down who did it, and only then the gateway is asked to do it.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import urlencode

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from observe.console.authentication import COOKIE
from observe.console.control_session import control_path
from observe.console.page_context import PageContext
from observe.console.page_request import PageRequest
from observe.console.pages.event_page import found_page
from observe.console.parts.layout import Page

log = structlog.get_logger()


# 2 s in all, as long as a change takes to come back at the worst; then the page is shown as it is.
_LOOK_S = 0.05
_LOOKS_MAX = 40


async def sign_out(_: PageRequest) -> Response:
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


async def show_payload(asked: PageRequest) -> Page:
    stream, event_id = asked.field("stream"), asked.fields.get("id", "")
    if stream not in asked.streams:
        raise HTTPException(404, "There is no such stream, or it is not yours.")
    log.info("payload.shown", key_id=asked.viewer.key_id, stream=stream, event_id=event_id)
    result = await asked.sources.events.find(stream, event_id)
    return found_page(asked, event_id, result, shows_payload=True)


async def redrive(asked: PageRequest) -> Response:
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


async def revoke(asked: PageRequest) -> Response:
    key = asked.key
    if key.id == asked.viewer.key_id:
        raise HTTPException(403, "A key cannot revoke itself: sign in with another.")
    log.info("key.revoked", key_id=asked.viewer.key_id, revoked=key.id)
    await asked.control.change("DELETE", "keys", key.id, version=asked.field("version"))
    await _until(asked, lambda now: key.id not in now.configuration.keys)
    return RedirectResponse("/keys?done=revoked", status_code=303)


async def resume(asked: PageRequest) -> Response:
    destination = asked.destination
    log.info("destination.resumed", key_id=asked.viewer.key_id, destination=destination.id)
    path, version = control_path(destination), asked.field("version")
    await asked.control.change("POST", *path, action="resume", version=version)
    await _until(asked, lambda now: now.configured(destination.id) != destination)
    return RedirectResponse(f"/streams/{destination.id}", status_code=303)


async def _until(asked: PageRequest, is_seen: Callable[[PageContext], bool]) -> None:
    """Wait for our own feed, so that the next page shows the change."""
    for _ in range(_LOOKS_MAX):
        if is_seen(asked.sources.context()):
            return
        await asyncio.sleep(_LOOK_S)
