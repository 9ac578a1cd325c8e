"""Answers the GETs: pages, their live changes, and the overview as JSON for programs."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from observe.console.authentication import Identity, SignedOut, local_path, require_admin
from observe.console.control_session import control_path
from observe.console.live import STREAMS_MAX, Live
from observe.console.page_context import PageContext
from observe.console.page_request import PageRequest
from observe.console.pages.dead_page import confirm_page, dead_page
from observe.console.pages.destination_pages import destination_page, destinations_page, stream_page
from observe.console.pages.event_page import event_page
from observe.console.pages.keys_page import keys_page, revoke_page
from observe.console.pages.overview_page import as_json, overview_page
from observe.console.pages.plain_pages import sign_in_page
from observe.console.pages.resume_page import PATH as RESUME
from observe.console.pages.resume_page import resume_page
from observe.console.parts.layout import Page, render
from observe.console.sources import Sources
from observe.console.viewers import Viewer
from shared.config.configuration import Configuration
from shared.proof.overview import Overview

# Different pages that are looked at within a second; what somebody makes up is not kept for long.
_MADE_MAX = 100
# Path, and tenant, streams and rights of whoever looks; and of what which page was made.
_Seen = tuple[str, str | None, frozenset[str], bool]
_Made = tuple[Overview, Configuration, Page | None]


class Views:
    def __init__(self, sources: Sources, *, live: Live) -> None:
        self._sources = sources
        self._live = live
        self._made: dict[_Seen, _Made] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.made_page),
            Route("/destinations", self.made_page),
            Route("/streams/{stream}", self.made_page),
            Route("/streams/{stream}/{destination}", self.made_page),
            Route("/live", self.live),
            Route("/api/overview", self.overview),
            self._route("/events", self.find_event),
            self._route("/dead", self.dead_letters),
            self._route("/dead/redrive", self.confirm_redrive, for_admins=True),
            self._route("/keys", self.keys),
            self._route("/keys/revoke", self.confirm_revoke, for_admins=True),
            self._route(RESUME, self.confirm_resume, for_admins=True),
            Route("/sign-in", self.sign_in, methods=["GET"]),
        ]

    async def made_page(self, request: Request) -> Response:
        """A page that is made of the page context alone."""
        identity = self._sources.authentication.identify(request)
        page = self._page_at(request.url.path, identity.viewer)
        if page is None:
            raise HTTPException(404, "There is no such stream or destination, or it is not yours.")
        return self._answer(identity, page)

    async def live(self, request: Request) -> Response:
        """Changes of the page at `path`, for as long as the viewer may see it."""
        self._sources.authentication.identify(request)
        if self._live.count >= STREAMS_MAX:
            raise HTTPException(503, "Too many pages are live; this one stays as it is.")
        path = urlsplit(request.query_params.get("path", "/")).path

        def make() -> Page | None:
            try:
                # Each time: a key that is revoked sees nothing more.
                viewer = self._sources.authentication.identify(request).viewer
            except SignedOut:
                return None
            return self._page_at(path, viewer)

        return StreamingResponse(self._live.follow(make), media_type="text/event-stream")

    async def overview(self, request: Request) -> Response:
        identity = self._sources.authentication.identify_program(request)
        context = self._sources.context().seen_by(identity.viewer)
        return JSONResponse(as_json(context.overview))

    async def find_event(self, asked: PageRequest) -> Page:
        stream, event_id, before = asked.field("stream"), asked.field("id"), asked.field("before")
        result = None
        if event_id and stream in asked.streams:
            before_ms = int(before) if before.isdigit() and len(before) < 16 else None  # noqa: PLR2004 - no year has more digits
            result = await self._sources.events.find(stream, event_id, before_ms=before_ms)
        return event_page(
            asked.streams,
            stream=stream,
            event_id=event_id,
            result=result,
            around=asked.identity.around,
            may_reveal=asked.viewer.may_change,
            schedule=self._sources.schedule,
        )

    async def dead_letters(self, asked: PageRequest) -> Page:
        done = asked.field("sent")
        return dead_page(
            asked.filters,
            await asked.letters(),
            may_redrive=asked.viewer.may_change,
            streams=asked.streams,
            done=f"{int(done):,} sent again." if done.isdigit() and len(done) < 16 else "",  # noqa: PLR2004 - as above
        )

    async def confirm_redrive(self, asked: PageRequest) -> Page:
        return confirm_page(asked.filters, await asked.letters(), around=asked.identity.around)

    async def keys(self, asked: PageRequest) -> Page:
        return keys_page(
            asked.keys,
            around=asked.identity.around,
            may_revoke=asked.viewer.may_change,
            now_ms=self._sources.now_ms(),
            done="The key is revoked." if asked.field("done") == "revoked" else "",
        )

    async def confirm_revoke(self, asked: PageRequest) -> Page:
        version = await asked.control.version("keys", asked.key.id)
        return revoke_page(asked.key, version=version, around=asked.identity.around)

    async def confirm_resume(self, asked: PageRequest) -> Page:
        destination = asked.destination
        view = asked.context.destination(destination.id)
        return resume_page(
            destination,
            asked.context.flows.get(destination.id),
            waiting=view.backlog_events if view else 0,
            version=await asked.control.version(*control_path(destination)),
            around=asked.identity.around,
        )

    async def sign_in(self, request: Request) -> Response:
        session, cookie = self._sources.authentication.stranger(request)
        next_path = local_path(request.query_params.get("next", "/"))
        csrf = self._sources.authentication.csrf(session)
        response = HTMLResponse(sign_in_page(csrf=csrf, next_path=next_path))
        if cookie:
            self._sources.authentication.set_cookie(response, cookie)
        return response

    def _route(
        self,
        path: str,
        make: Callable[[PageRequest], Awaitable[Page]],
        *,
        for_admins: bool = False,
    ) -> Route:
        async def serve(request: Request) -> Response:
            identity = self._sources.authentication.identify(request)
            if for_admins:
                require_admin(identity.viewer)
            page = await make(self._sources.page_request(identity, request.query_params))
            return self._answer(identity, page)

        return Route(path, serve, methods=["GET"])

    def _answer(self, identity: Identity, page: Page) -> Response:
        response = HTMLResponse(render(page, identity.around))
        if identity.new_cookie:
            self._sources.authentication.set_cookie(response, identity.new_cookie)
        return response

    def _page_at(self, path: str, viewer: Viewer) -> Page | None:
        """The page as it is now; made once for all who look at the same."""
        context = self._sources.context()
        key = (path, viewer.tenant, viewer.streams, viewer.may_change)
        made = self._made.get(key)
        if made and made[0] is context.overview and made[1] is context.configuration:
            return made[2]
        page = self._make_page(path, context.seen_by(viewer), may_resume=viewer.may_change)
        if len(self._made) >= _MADE_MAX:
            self._made.clear()
        self._made[key] = (context.overview, context.configuration, page)
        return page

    def _make_page(self, path: str, context: PageContext, *, may_resume: bool) -> Page | None:
        match path.strip("/").split("/"):
            case [""]:
                return overview_page(context)
            case ["destinations"]:
                return destinations_page(context)
            case ["streams", stream]:
                return stream_page(stream, context)
            case ["streams", stream, destination]:
                return destination_page(f"{stream}/{destination}", context, may_resume=may_resume)
            case _:
                return None
