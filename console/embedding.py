"""Serves the console to anybody who has a link, even in a frame of another site's page.

`/embed/LINK/streams` is the page `/streams` as the link's viewer sees it. The link is in the path
and not in a cookie: browsers withhold cookies from frames of other sites, and two frames with two
tenants would share them. Pages need not know about `/embed/LINK`: this module puts it before our
own paths in each finished answer.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.authentication import LINK
from console.pages.plain_pages import ended_page
from shared.config.access import ViewLink
from shared.runtime.tokens.links import LinkError

# The key in a request's scope for the sites that may show the answer in a frame.
FRAMED_BY = "hifi.framed_by"
ReadsLinks: TypeAlias = Callable[[str], ViewLink]
_EMBED = "/embed/"
# Paths as markup.tag writes them, in pages and in the JSON of live updates; text has no raw quotes.
_LEADS = re.compile(rb' (href|src|action)=(\\?")/')
_WITH_LINKS = ("text/html", "text/event-stream")


class Embedding:
    """Serves everything below `/embed/`, and passes other requests on."""

    def __init__(self, app: ASGIApp, read_link: ReadsLinks) -> None:
        self._app = app
        self._read_link = read_link

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_EMBED):
            await self._app(scope, receive, send)
            return
        text, _, path = scope["path"].removeprefix(_EMBED).partition("/")
        try:
            scope[FRAMED_BY] = self._read_link(text).origins
        except LinkError as error:
            scope[FRAMED_BY] = error.origins
            page = HTMLResponse(ended_page(str(error)), status_code=403)
            await page(scope, receive, send)
            return
        if scope["method"] not in {"GET", "HEAD"}:
            refusal = PlainTextResponse(
                "A link can only show pages: it cannot change anything.\n", status_code=403
            )
            await refusal(scope, receive, send)
            return
        if path.startswith("sign-"):
            # Nobody should type a key into a frame.
            path = "no-sign-in"
        below = {**scope, "path": f"/{path}", LINK: text}
        await self._app(below, receive, _moved(send, to=f"{_EMBED}{text}"))


def _moved(send: Send, *, to: str) -> Send:
    """Put the path of the link before our own paths in answers."""
    below = rb" \1=\2" + to.encode() + b"/"
    has_links = False

    async def send_moved(message: Message) -> None:
        nonlocal has_links
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            has_links = headers.get("content-type", "").startswith(_WITH_LINKS)
            if has_links:
                # The longer paths make the body longer.
                del headers["content-length"]
            if headers.get("location", "").startswith("/"):
                headers["location"] = to + headers["location"]
        elif has_links:
            message["body"] = _LEADS.sub(below, message.get("body", b""))
        await send(message)

    return send_moved
