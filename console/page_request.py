"""A request to the console: its viewer, its content, and the sources of the answer."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from console.authentication import Authentication, Identity
from console.control_session import FILTERS, ControlSession, Letters
from console.forms import BYTES_MAX, LongForms, form_of
from console.page_context import PageContext
from console.page_threads import InThread, PageThreads
from console.parts.layout import Page, PageFrame, is_shown_by_link, render
from console.viewers import Viewer
from shared.config.access import DEFAULT_TENANT, ApiKey
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.config.outside.channel import Channel
from shared.config.pipeline import Pipeline
from shared.event.topics import destination_id
from shared.proof.acked import AckedRequest
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.lookup.event_search import SearchResult
from shared.runtime.kafka.lookup.key_search import KeyedEvents
from shared.runtime.kafka.lookup.streams_with_id import StreamsWithId
from shared.runtime.setup_error import NoAnswerError
from shared.runtime.tenant_turns import TenantTurns

# 2 s in total, as long as a change may take to arrive here; after that, the page is shown as is.
_LOOK_S = 0.05
_LOOKS_MAX = 40
# More digits than any time in milliseconds, or any count, needs.
_DIGITS_MAX = 15
# The longest that three searches may take.
_SEARCH_WAIT_S = 20.0


class EventFinder(Protocol):
    """Finds events by id, key or request; implemented by shared.runtime.kafka.lookup."""

    async def find(
        self,
        stream: str,
        event_id: str,
        *,
        before_ms: int | None = None,
        destination_ids: Collection[str] = (),
    ) -> SearchResult: ...

    async def among(self, streams: Sequence[str], event_id: str) -> StreamsWithId: ...

    async def of_key(self, streams: Sequence[str], key: str) -> KeyedEvents: ...

    async def request(self, request_id: str, *, since_ms: int) -> AckedRequest: ...


@dataclass(frozen=True, slots=True)
class PageRequest:
    viewer: Viewer
    around: PageFrame
    path: str
    # The fields of its query, or of its form.
    fields: Mapping[str, str]
    sources: "Sources"
    context: PageContext
    control: ControlSession

    @property
    def in_thread(self) -> InThread:
        """Runs work in the threads of the viewer's tenant."""
        return self.sources.threads.of(self.viewer.tenant)

    def search_turn(self) -> AbstractAsyncContextManager[None]:
        """A turn for one search of the viewer's tenant."""
        return self.sources.searches.of(self.viewer.tenant)

    def field(self, name: str) -> str:
        return self.fields.get(name, "").strip()

    def number(self, name: str) -> int | None:
        text = self.field(name)
        return int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else None

    @property
    def streams(self) -> list[str]:
        """The names of the streams that the viewer may see, including removed ones."""
        names, tenant_of = self.context.configuration.past_streams, self.context.tenant_of
        return sorted(each for each in names if self.viewer.sees(each, tenant=tenant_of(each)))

    @property
    def keys(self) -> list[ApiKey]:
        """The keys of the viewer's tenant; those of every tenant for an operator."""
        tenant, keys = self.viewer.tenant, self.context.configuration.keys.values()
        if tenant == DEFAULT_TENANT and self.viewer.may_change:
            # The same rule as the gateway's.
            tenant = None
        return [key for key in keys if tenant in {None, key.tenant}]

    @property
    def key(self) -> ApiKey:
        """The requested key; 404 unless the viewer may see it."""
        for key in self.keys:
            if key.id == self.field("id"):
                return key
        raise HTTPException(404, "This key does not exist (any more).")

    def channel_id(self, name: str) -> str:
        """Return the id of a channel of the viewer's tenant, or else of the default tenant."""
        return f"{self.viewer.tenant or DEFAULT_TENANT}/{name}"

    @property
    def channels(self) -> list[Channel]:
        """The channels of the viewer's tenant, by name."""
        if self.viewer.streams:
            # The same rule as the gateway's.
            return []
        channels = sorted(self.context.configuration.channels.values(), key=lambda each: each.name)
        return [each for each in channels if each.id == self.channel_id(each.name)]

    @property
    def channel(self) -> Channel:
        """The requested channel; 404 unless the viewer may see it."""
        known = self.context.configuration.channels
        channel = known.get(self.channel_id(self.field("channel")))
        # The same rule as the gateway's: a key for only some streams sees no channels.
        if channel is None or self.viewer.streams:
            raise HTTPException(404, "This channel does not exist (any more).")
        return channel

    @property
    def destination(self) -> Destination:
        """The requested destination; 404 unless the viewer may see it."""
        stream = self.field("stream")
        named = self.context.configured(destination_id(stream, self.field("destination")))
        if named is None or stream not in self.streams:
            raise HTTPException(404, "There is no such destination, or it is not yours.")
        return named

    @property
    def stream(self) -> Stream:
        """The requested stream; 404 unless the viewer may see it."""
        named = self.context.configuration.streams.get(self.field("stream"))
        if named is None or named.name not in self.streams:
            raise HTTPException(404, "There is no such stream, or it is not yours.")
        return named

    @property
    def pipeline(self) -> Pipeline:
        """The requested pipeline; 404 unless the viewer may see all of its streams."""
        named = self.context.configuration.pipelines.get(self.field("pipeline"))
        if named is None or not named.streams <= set(self.streams):
            raise HTTPException(404, "There is no such pipeline, or it is not yours.")
        return named

    @property
    def is_set(self) -> bool:
        """Whether the path's object is configured, and visible to the viewer."""
        known = self.context.configuration
        match self.path.strip("/").split("/"):
            case ["streams", stream]:
                return stream in known.streams and stream in self.streams
            case ["streams", stream, name]:
                return f"{stream}/{name}" in known.destinations and stream in self.streams
            case ["pipelines", name] if name in known.pipelines:
                return known.pipelines[name].streams <= set(self.streams)
            case _:
                return False

    @property
    def filters(self) -> dict[str, str]:
        """The filters for dead letters."""
        return {name: value for name in FILTERS if (value := self.field(name))}

    async def letters(self) -> Letters:
        """Return the requested dead letters that the viewer may see."""
        if (streams := self._letter_streams) is None:
            return Letters()
        before = self.field("before")
        return await self.control.letters(self.filters, streams=streams, before=before)

    async def export(self) -> bytes:
        """Return the oldest requested dead letters as NDJSON."""
        if (streams := self._letter_streams) is None:
            return b""
        return await self.control.export_letters(self.filters, streams=streams)

    @property
    def _letter_streams(self) -> list[str] | None:
        """The streams to ask the gateway for; an empty list means all that the key may see."""
        stream = self.field("stream")
        streams = [name for name in self.streams if stream in {"", name}]
        if self.viewer.tenant is None and not stream:
            # Nobody has signed in: the gateway decides which streams anybody may see.
            return [] if streams else None
        return streams or None

    async def wait_until(self, is_seen: Callable[[PageContext], bool]) -> None:
        """Wait until our own feed has a change, so that the next page shows it."""
        for _ in range(_LOOKS_MAX):
            if is_seen(self.sources.context()):
                return
            await asyncio.sleep(_LOOK_S)


# A route's answer to a request.
Answer: TypeAlias = Callable[[PageRequest], Awaitable[Page | Response]]


def _search_turns() -> TenantTurns:
    """Return the turns of searches: one at a time for a tenant, as each reads Kafka for seconds."""
    return TenantTurns(math.inf, within_s=_SEARCH_WAIT_S, refusal=_searching_already)


def _searching_already() -> NoAnswerError:
    return NoAnswerError("Your other searches are still running. Search again when they are done.")


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of all answers, created once by the server."""

    authentication: Authentication
    context: Callable[[], PageContext]
    events: EventFinder
    # The gateway's address.
    gateway: str
    schedule: RetrySchedule
    threads: PageThreads
    searches: TenantTurns = field(default_factory=_search_turns)
    long_forms: LongForms = field(default_factory=LongForms)
    # Each trial holds a thread for as long as Spark takes, and there are few threads.
    trials: LongForms = field(
        default_factory=lambda: LongForms(1, 2, "Other pipelines are being tried. Try again.")
    )

    def route(
        self,
        method: str,
        path: str,
        answer: Answer,
        *,
        for_admins: bool = False,
        form_bytes_max: int = BYTES_MAX,
    ) -> Route:
        """Return a route that checks the viewer's permissions, and that a form is from us."""

        async def serve(request: Request) -> Response:
            identity = self.authentication.identify(request)
            if identity.viewer.has_link and not is_shown_by_link(path):
                raise HTTPException(403, "A link does not show this page. Sign in with a key.")
            if for_admins and not identity.viewer.may_change:
                raise HTTPException(403, "This needs a key with the scope admin.")
            if method != "POST":
                return await respond(request, identity, request.query_params)
            with ExitStack() as resources:
                turn = self.long_forms.turn(identity.viewer.tenant or "")
                fields = await form_of(
                    request,
                    self.threads.of(identity.viewer.tenant),
                    bytes_max=form_bytes_max,
                    on_long=lambda: resources.enter_context(turn),
                )
                self.authentication.check_post(request, identity.session, fields)
                return await respond(request, identity, fields)

        async def respond(
            request: Request, identity: Identity, fields: Mapping[str, str]
        ) -> Response:
            viewer, around = identity.viewer, identity.around
            in_thread = self.threads.of(viewer.tenant)
            control = ControlSession(self.gateway, identity.session.credential, in_thread)
            here, context = request.url.path, self.context()
            made = await answer(PageRequest(viewer, around, here, fields, self, context, control))
            if isinstance(made, Page):
                made = HTMLResponse(render(made, around))
            self.authentication.set_cookie(made, identity.new_cookie)
            return made

        return Route(path, serve, methods=[method])
