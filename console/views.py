"""Routes each request to its answer: pages, live updates, the overview as JSON, sign-in.

Before it changes something or shows event contents, the console logs that with the viewer's key.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from console.authentication import COOKIE, SignedOut, local_path
from console.forms import form_of
from console.live import Live
from console.page_context import PageContext
from console.page_request import PageRequest, Sources
from console.pages.alerts_page import PATH as ALERTS
from console.pages.alerts_page import alerts_page, runbooks_page
from console.pages.changes.key_changes import CHANGES as KEY_CHANGES
from console.pages.changes.key_changes import KEYS
from console.pages.changes.pipeline_changes import CHANGES as PIPELINE_CHANGES
from console.pages.changes.stream_changes import CHANGES as STREAM_CHANGES
from console.pages.changes_page import PATH as CHANGES_PATH
from console.pages.changes_page import changes_page, with_last_change
from console.pages.channels.channel_changes import CHANGES as CHANNEL_CHANGES
from console.pages.channels.channel_changes import CHANNELS
from console.pages.channels.channels_page import channels_page
from console.pages.dead_letters_page import PATH as LETTERS
from console.pages.dead_letters_page import confirm_page, dead_letters_page, export, redrive
from console.pages.dead_page import DEAD_ASKED, dead_page
from console.pages.dead_page import PATH as DEAD
from console.pages.destinations.destination_changes import CHANGES as DESTINATION_CHANGES
from console.pages.destinations.destination_pages import PATH as DESTINATIONS
from console.pages.destinations.destination_pages import destination_page, destinations_page
from console.pages.events.event_page import event_page, show_payload
from console.pages.events.newest_page import newest_page
from console.pages.events.resend_form import PATH as RESEND
from console.pages.events.resend_form import resend
from console.pages.keys_page import keys_page
from console.pages.overview_page import as_json, overview_page
from console.pages.pipeline_pages import pipeline_page, pipelines_page
from console.pages.plain_pages import sign_in_page, soon_page, words_page
from console.pages.replays_page import CHANGES as REPLAY_CHANGES
from console.pages.replays_page import PATH as REPLAYS
from console.pages.replays_page import replays_page
from console.pages.stream_pages import PATH as STREAMS
from console.pages.stream_pages import stream_page, streams_page
from console.pages.table_pages import PATH as TABLES
from console.pages.table_pages import table_page, tables_page
from console.pages.tenant_pages import PATH as TENANTS
from console.pages.tenant_pages import tenant_page, tenants_page
from console.parts.layout import Page
from console.parts.pictures import ASKED as PICTURES_ASKED
from console.parts.runbooks import PATH as RUNBOOKS
from console.parts.search_list import ASKED
from console.viewers import Viewer
from shared.config.configuration import Configuration
from shared.proof.overview import Overview
from shared.runtime.serving.deadlines import stays

_CHANGES = {
    **DESTINATION_CHANGES,
    **STREAM_CHANGES,
    **PIPELINE_CHANGES,
    **CHANNEL_CHANGES,
    **KEY_CHANGES,
    **REPLAY_CHANGES,
}
# Different pages to keep; those of made-up addresses are dropped soon.
_MADE_MAX = 100
# The path, its query, and the viewer's tenant, streams and permissions.
_Seen = tuple[str, tuple[tuple[str, str], ...], str | None, frozenset[str], bool]
_Made = tuple[Overview, Configuration, Page | None]


class Views:
    def __init__(self, sources: Sources, live: Live) -> None:
        self._sources = sources
        self._authentication = sources.authentication
        # The threads shared by all people who have not signed in.
        self._in_thread = sources.threads.of(None)
        self._live = live
        self._provider = sources.authentication.provider_name
        self._made: dict[_Seen, _Made] = {}

    def routes(self) -> list[Route]:
        route = self._sources.route
        return [
            route("GET", "/", self.made_page),
            route("GET", STREAMS, self.made_page),
            route("GET", DESTINATIONS, self.made_page),
            route("GET", ALERTS, self.made_page),
            route("GET", "/pipelines", self.made_page),
            route("GET", "/pipelines/{pipeline}", self.made_page),
            route("GET", "/streams/{stream}", self.object_page),
            route("GET", "/streams/{stream}/{destination}", self.object_page),
            route("GET", CHANGES_PATH, changes_page),
            route("GET", REPLAYS, replays_page),
            route("GET", TABLES, tables_page),
            route("GET", f"{TABLES}/{{table}}", table_page),
            Route("/live", self.live),
            Route("/api/overview", self.overview),
            route("GET", "/events", event_page),
            route("GET", "/events/newest", newest_page),
            route("POST", "/events/payload", show_payload, for_admins=True),
            route("POST", RESEND, resend, for_admins=True),
            route("GET", DEAD, self.made_page),
            route("GET", LETTERS, dead_letters_page),
            route("POST", "/dead/export", export, for_admins=True),
            route("GET", "/dead/redrive", confirm_page, for_admins=True),
            route("POST", "/dead/redrive", redrive, for_admins=True),
            route("GET", "/words", words_page),
            route("GET", RUNBOOKS, runbooks_page),
            route("GET", f"{RUNBOOKS}/{{name}}", runbooks_page),
            route("GET", TENANTS, tenants_page),
            route("GET", f"{TENANTS}/{{tenant}}", tenant_page),
            route("GET", KEYS, keys_page),
            route("GET", CHANNELS, channels_page),
            *self._changes(),
            Route("/sign-in", self.sign_in_form, methods=["GET"]),
            Route("/sign-in", self.sign_in, methods=["POST"]),
            route("POST", "/sign-out", self.sign_out),
        ]

    def _changes(self) -> Iterator[Route]:
        """Yield the routes of forms with which admins create, change and remove things."""
        route = self._sources.route
        for path, change in _CHANGES.items():
            yield route("GET", path, change.ask, for_admins=True)
            yield route(
                "POST",
                path,
                change.make,
                for_admins=True,
                form_bytes_max=change.form_bytes_max,
            )

    async def made_page(self, asked: PageRequest) -> Page:
        """Show a page that needs only the page context."""
        page = self._page_at(asked.path, asked.fields, asked.viewer)
        if page is None and asked.is_set:
            return soon_page(asked.path)
        if page is None:
            what = "stream, destination or pipeline"
            raise HTTPException(404, f"There is no such {what}, or it is not yours.")
        return page

    async def object_page(self, asked: PageRequest) -> Page:
        """Show the page of a stream or a destination, with the author of its last change."""
        page = await self.made_page(asked)
        name = asked.path.removeprefix(f"{STREAMS}/")
        return await with_last_change(page, asked, "destination" if "/" in name else "stream", name)

    async def live(self, request: Request) -> Response:
        """Stream the changes of the page at `path`, for as long as the viewer may see it."""
        tenant = self._authentication.identify(request).viewer.tenant or ""
        if not self._live.has_room(tenant):
            raise HTTPException(503, "Too many pages are live; this one is not updated.")
        looked_at = urlsplit(request.query_params.get("path", "/"))
        path, fields = looked_at.path, dict(parse_qsl(looked_at.query))

        def make() -> Page | None:
            try:
                # Checked each time, so that a revoked key sees nothing more.
                viewer = self._authentication.identify(request).viewer
            except SignedOut:
                return None
            return self._page_at(path, fields, viewer)

        if not stays(request.scope["state"]):
            return Response()
        return StreamingResponse(
            self._live.follow(make, tenant=tenant), media_type="text/event-stream"
        )

    async def overview(self, request: Request) -> Response:
        identity = self._authentication.identify_program(request)
        context = self._sources.context().seen_by(identity.viewer)
        return JSONResponse(as_json(context.overview))

    async def sign_in_form(self, request: Request) -> Response:
        session, cookie = self._authentication.stranger(request)
        next_path = local_path(request.query_params.get("next", "/"))
        csrf = self._authentication.cookies.csrf(session)
        response = HTMLResponse(
            sign_in_page(csrf=csrf, next_path=next_path, provider=self._provider)
        )
        self._authentication.set_cookie(response, cookie)
        return response

    async def sign_in(self, request: Request) -> Response:
        fields = await form_of(request, self._in_thread)
        session, _ = self._authentication.stranger(request)
        next_path = local_path(fields.get("next", "/"))
        self._authentication.check_post(request, session, fields)
        try:
            cookie = self._authentication.try_key(fields.get("key", ""))
        except HTTPException as refusal:
            csrf = self._authentication.cookies.csrf(session)
            page = sign_in_page(
                csrf=csrf, next_path=next_path, problem=refusal.detail, provider=self._provider
            )
            return HTMLResponse(page, status_code=refusal.status_code)
        response = RedirectResponse(next_path, status_code=303)
        self._authentication.set_cookie(response, cookie)
        return response

    async def sign_out(self, _: PageRequest) -> Response:
        response = RedirectResponse("/sign-in", status_code=303)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    def _page_at(self, path: str, fields: Mapping[str, str], viewer: Viewer) -> Page | None:
        """Return the current page, built once for all viewers who see the same."""
        context = self._sources.context()
        # These pages ignore all other query parameters.
        others = {STREAMS: ASKED, DESTINATIONS: ASKED, DEAD: DEAD_ASKED}
        names = others.get(path, PICTURES_ASKED)
        asked = {name: fields[name] for name in names if name in fields}
        key = (path, tuple(asked.items()), viewer.tenant, viewer.streams, viewer.may_change)
        made = self._made.get(key)
        if made and made[0] is context.overview and made[1] is context.configuration:
            return made[2]
        page = self._make_page(path, asked, context.seen_by(viewer), may_change=viewer.may_change)
        if len(self._made) >= _MADE_MAX:
            self._made.clear()
        self._made[key] = (context.overview, context.configuration, page)
        return page

    def _make_page(
        self, path: str, asked: Mapping[str, str], context: PageContext, *, may_change: bool
    ) -> Page | None:
        page: Page | None = None
        match path.strip("/").split("/"):
            case [""]:
                page = overview_page(context, asked, may_change=may_change)
            case ["streams"]:
                page = streams_page(context, asked, may_change=may_change)
            case ["destinations"]:
                page = destinations_page(context, asked, may_change=may_change)
            case ["dead"]:
                page = dead_page(context, asked, may_change=may_change)
            case ["alerts"]:
                page = alerts_page(context)
            case ["pipelines"]:
                page = pipelines_page(context, may_change=may_change)
            case ["pipelines", pipeline]:
                page = pipeline_page(pipeline, context, asked, may_change=may_change)
            case ["streams", stream]:
                page = stream_page(stream, context, asked, may_change=may_change)
            case ["streams", stream, destination]:
                name = f"{stream}/{destination}"
                page = destination_page(name, context, asked, may_change=may_change)
            case _:
                pass
        return page
