"""Answers the GETs: pages, their live changes, and the overview as JSON for programs."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from observe.console.authentication import PageRequest, SignedOut, local_path
from observe.console.live import STREAMS_MAX, Live
from observe.console.page_context import PageContext
from observe.console.pages.dead_page import DeadPageQuery, confirm_page, dead_page
from observe.console.pages.destination_pages import destination_page, destinations_page, stream_page
from observe.console.pages.event_page import event_page
from observe.console.pages.keys_page import keys_page, revoke_page
from observe.console.pages.overview_json import as_json
from observe.console.pages.overview_page import overview_page
from observe.console.pages.plain_pages import sign_in_page
from observe.console.pages.resume_page import PATH as RESUME
from observe.console.pages.resume_page import resume_page
from observe.console.parts.layout import Page, render, render_bare
from observe.console.sources import Sources
from observe.console.viewers import Viewer
from shared.config.access import ApiKey
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.event.topics import destination_id
from shared.proof.overview import Overview

# Different pages that are looked at within a second; what somebody makes up is not kept for long.
_MADE_MAX = 100
# Path, and tenant, streams and rights of whoever looks; and of what which page was made.
_Seen = tuple[str, str | None, frozenset[str], bool]
_Made = tuple[Overview, Configuration, Page | None]
# What came of a post, by the word that its redirect carries.
_DONE = {"revoked": "The key is revoked.", "nothing": "There was nothing to send again."}


class Views:
    def __init__(self, sources: Sources, *, live: Live) -> None:
        self._sources = sources
        self._live = live
        self._made: dict[_Seen, _Made] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/destinations", self.page),
            Route("/streams/{stream}", self.page),
            Route("/streams/{stream}/{destination}", self.page),
            Route("/live", self.live),
            Route("/api/overview", self.overview),
            Route("/events", self.find_event),
            Route("/dead", self.dead_letters),
            Route("/dead/redrive", self.confirm_redrive, methods=["GET"]),
            Route("/keys", self.keys),
            Route("/keys/revoke", self.confirm_revoke, methods=["GET"]),
            Route(RESUME, self.confirm_resume, methods=["GET"]),
            Route("/sign-in", self.sign_in, methods=["GET"]),
        ]

    async def page(self, request: Request) -> Response:
        """A page that is made of the scene alone."""
        visit = self._sources.doors.visit(request)
        page = self._page_at(request.url.path, visit.viewer)
        if page is None:
            raise HTTPException(404, "There is no such stream or destination, or it is not yours.")
        return self.answer(visit, page)

    async def live(self, request: Request) -> Response:
        """Changes of the page at `path`, for as long as the viewer may see it."""
        self._sources.doors.visit(request)
        if self._live.count >= STREAMS_MAX:
            raise HTTPException(503, "Too many pages are live; this one stays as it is.")
        path = urlsplit(request.query_params.get("path", "/")).path

        def make() -> Page | None:
            try:
                # Each time: a key that is revoked sees nothing more.
                viewer = self._sources.doors.visit(request).viewer
            except SignedOut:
                return None
            return self._page_at(path, viewer)

        return StreamingResponse(self._live.follow(make), media_type="text/event-stream")

    async def overview(self, request: Request) -> Response:
        visit = self._sources.doors.visit_of_program(request)
        scene = self._sources.scene().seen_by(visit.viewer)
        return JSONResponse(as_json(scene.overview))

    async def find_event(self, request: Request) -> Response:
        visit = self._sources.doors.visit(request)
        names = stream_names(self._sources.scene(), visit.viewer)
        stream = request.query_params.get("stream", "")
        event_id = request.query_params.get("id", "").strip()
        before = request.query_params.get("before", "")
        result = None
        if event_id and stream in names:
            before_ms = int(before) if before.isdigit() and len(before) < 16 else None  # noqa: PLR2004 - no year has more digits
            result = await self._sources.events.find(stream, event_id, before_ms=before_ms)
        page = event_page(
            names,
            stream=stream,
            event_id=event_id,
            result=result,
            around=visit.around,
            may_reveal=visit.viewer.may_change,
            schedule=self._sources.schedule,
        )
        return self.answer(visit, page)

    async def dead_letters(self, request: Request) -> Response:
        visit = self._sources.doors.visit(request)
        names = stream_names(self._sources.scene(), visit.viewer)
        wanted = wanted_of(dict(request.query_params))
        letters = await self._sources.dead.look(wanted, streams=frozenset(names))
        done = request.query_params.get("sent", "")
        page = dead_page(
            wanted,
            letters,
            may_redrive=visit.viewer.may_change,
            streams=names,
            done=f"{int(done):,} sent again." if done.isdigit() and len(done) < 16 else "",  # noqa: PLR2004 - as above
        )
        return self.answer(visit, page)

    async def confirm_redrive(self, request: Request) -> Response:
        visit = self._sources.doors.visit(request)
        require_admin(visit.viewer)
        names = stream_names(self._sources.scene(), visit.viewer)
        wanted = wanted_of(dict(request.query_params))
        letters = await self._sources.dead.look(wanted, streams=frozenset(names))
        return self.answer(visit, confirm_page(wanted, letters, around=visit.around))

    async def keys(self, request: Request) -> Response:
        visit = self._sources.doors.visit(request)
        page = keys_page(
            keys_seen(self._sources.scene(), visit.viewer),
            around=visit.around,
            may_revoke=visit.viewer.may_change,
            now_ms=self._sources.now_ms(),
            done=_DONE.get(request.query_params.get("done", ""), ""),
        )
        return self.answer(visit, page)

    async def confirm_revoke(self, request: Request) -> Response:
        visit = self._sources.doors.visit(request)
        require_admin(visit.viewer)
        key = key_of(self._sources.scene(), visit.viewer, request.query_params.get("id", ""))
        return self.answer(visit, revoke_page(key, around=visit.around))

    async def confirm_resume(self, request: Request) -> Response:
        visit = self._sources.doors.visit(request)
        require_admin(visit.viewer)
        scene = self._sources.scene()
        found = destination_of(scene, visit.viewer, request.query_params)
        view = scene.destination(found.id)
        page = resume_page(
            found,
            scene.flows.get(found.id),
            waiting=view.backlog_events if view else 0,
            around=visit.around,
        )
        return self.answer(visit, page)

    async def sign_in(self, request: Request) -> Response:
        session, cookie = self._sources.doors.stranger(request)
        next_path = local_path(request.query_params.get("next", "/"))
        form = sign_in_page(csrf=self._sources.doors.csrf(session), next_path=next_path)
        response = HTMLResponse(render_bare("Sign in", form))
        if cookie:
            self._sources.doors.set_cookie(response, cookie)
        return response

    def answer(self, visit: PageRequest, page: Page) -> Response:
        response = HTMLResponse(render(page, visit.around))
        if visit.new_cookie:
            self._sources.doors.set_cookie(response, visit.new_cookie)
        return response

    def _page_at(self, path: str, viewer: Viewer) -> Page | None:
        """The page as it is now; made once for all who look at the same."""
        scene = self._sources.scene()
        key = (path, viewer.tenant, viewer.streams, viewer.may_change)
        made = self._made.get(key)
        if made and made[0] is scene.overview and made[1] is scene.configuration:
            return made[2]
        page = self._make_page(path, scene.seen_by(viewer), may_resume=viewer.may_change)
        if len(self._made) >= _MADE_MAX:
            self._made.clear()
        self._made[key] = (scene.overview, scene.configuration, page)
        return page

    def _make_page(self, path: str, scene: PageContext, *, may_resume: bool) -> Page | None:
        match path.strip("/").split("/"):
            case [""]:
                return overview_page(scene)
            case ["destinations"]:
                return destinations_page(scene)
            case ["streams", stream]:
                return stream_page(stream, scene)
            case ["streams", stream, destination]:
                return destination_page(f"{stream}/{destination}", scene, may_resume=may_resume)
            case _:
                return None


def stream_names(scene: PageContext, viewer: Viewer) -> list[str]:
    """The streams that somebody may look into."""
    streams = scene.configuration.streams.values()
    return sorted(one.name for one in streams if viewer.sees(one.name, tenant=one.tenant))


def keys_seen(scene: PageContext, viewer: Viewer) -> list[ApiKey]:
    keys = scene.configuration.keys.values()
    return [key for key in keys if viewer.tenant is None or key.tenant == viewer.tenant]


def key_of(scene: PageContext, viewer: Viewer, key_id: str) -> ApiKey:
    key = next((key for key in keys_seen(scene, viewer) if key.id == key_id), None)
    if key is None:
        raise HTTPException(404, "There is no such key (any more).")
    return key


def destination_of(scene: PageContext, viewer: Viewer, fields: Mapping[str, str]) -> Destination:
    """The destination that a form names, if it is one of the viewer's."""
    stream, name = fields.get("stream", ""), fields.get("destination", "")
    found = scene.configured(destination_id(stream, name))
    if found is None or stream not in stream_names(scene, viewer):
        raise HTTPException(404, "There is no such destination, or it is not yours.")
    return found


def wanted_of(fields: dict[str, str]) -> DeadPageQuery:
    return DeadPageQuery(
        stream=fields.get("stream", "").strip(),
        destination=fields.get("destination", "").strip(),
        reason=fields.get("reason", "").strip(),
        event_id=fields.get("id", "").strip(),
    )


def require_admin(viewer: Viewer) -> None:
    if not viewer.may_change:
        raise HTTPException(403, "This needs a key with the scope admin.")
