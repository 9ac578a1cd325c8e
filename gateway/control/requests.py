"""Shared parts of all control plane routes: callers, request bodies, and changes.

A change is checked against the newest object and stored in one step for all gateways, so changes by
several people cannot overwrite each other (see ControlStore).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import structlog
from fastapi import Depends, Header, Path, Request, Response
from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from gateway.authors import Author
from gateway.callers import Caller, Callers, ConfigSource
from gateway.control.bounds import Bounded, check_bounds
from gateway.control.changes.log import ChangeLog
from gateway.control.changes.revision import Preconditions, etag_of
from gateway.control.stores.changes import ControlStore, RehearsalStore
from gateway.control.stores.receipts import EventPlaces, ReceiptStore
from gateway.control.stores.redrive import DeadLetterStore
from gateway.control.stores.replays import ReplayStore
from gateway.control.stores.resends import Resends
from gateway.intake.byte_budget import ByteBudget
from gateway.intake.request_body import Body, BodyLimits, ClientGoneError
from gateway.intake.schemas import SchemaChecks
from gateway.problems import PROBLEMS_MEMBER, Problem
from gateway.settings import Settings
from gateway.turns import search_turns
from gateway.watchers import Watchers
from shared.config.access import Scope
from shared.config.configuration import (
    REMOVED_KEPT_MS,
    Configuration,
    RemovedPipeline,
    RemovedTable,
)
from shared.config.model import ConfigError, ConfigObject
from shared.event.times import rfc3339
from shared.event.topics import NAME_PATTERN
from shared.event.trial import ChannelAnswer, ChannelAsked, TrialAnswer, TrialAsked
from shared.retry.dead_letter import Age, Place
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup.stream_pages import StreamPages
from shared.runtime.resolver import Resolver
from shared.runtime.secret_box import SecretBox
from shared.runtime.tenant_turns import TenantTurns

log = structlog.get_logger()

# The largest object is a stream with its schema of 256 Ki characters, escaped.
_BODY_BYTES_MAX = 1_048_576
_TRIALS_AT_ONCE = 16
_BODIES_AT_ONCE = 4
# Redrives spend most of their 20 s waiting for their rate, so more of them than of lists may run
# at once. The next one waits a little longer than a redrive takes.
_REDRIVES_AT_ONCE, _REDRIVE_WAIT_S = 4, 25.0
# Each waiting request has its own connection to Kafka.
_WAITING_OF_A_TENANT, _WAITING_MAX = 8, 64


Configured = TypeVar("Configured", bound=ConfigObject)
# An object's name in a path. A name that no object can have is answered as unknown.
PathName = Annotated[str, Path(json_schema_extra={"pattern": f"^{NAME_PATTERN.pattern}$"})]


def _time_ms(text: object) -> int:
    try:
        at = datetime.fromisoformat(str(text))
        at_ms = round(at.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ValueError("it must be a time such as 2026-11-21T10:00:00Z") from error
    if at.tzinfo is None:
        raise ValueError("it must be a time with a zone, such as 2026-11-21T10:00:00Z")
    return at_ms


TimeMs: TypeAlias = Annotated[
    int, BeforeValidator(_time_ms), WithJsonSchema({"type": "string", "format": "date-time"})
]
# Kafka partition and offset of a record.
PlaceText: TypeAlias = Annotated[
    Place,
    PlainValidator(lambda text: Place.of(str(text))),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,18}:[0-9]{1,18}$"}),
]
AgeText: TypeAlias = Annotated[
    Age,
    PlainValidator(lambda text: Age.of(str(text))),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,18}:[0-9]{1,18}:[0-9]{1,18}$"}),
]


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """Everything that the routes work with; one instance for each application."""

    settings: Settings
    config: ConfigSource
    callers: Callers
    store: ControlStore
    dead_letters: DeadLetterStore
    receipts: ReceiptStore
    box: SecretBox
    schemas: SchemaChecks
    stream_pages: StreamPages
    resends: Resends
    changes: ChangeLog
    replays: ReplayStore
    # Takes a tenant; raises Problem when it resends too often.
    charge_resend: Callable[[str], None]
    charge_channel_test: Callable[[str], None]
    places: EventPlaces
    try_pipeline: Callable[[TrialAsked], Awaitable[TrialAnswer | None]]
    try_channel: Callable[[ChannelAsked], Awaitable[ChannelAnswer | None]]
    is_rehearsal: bool = False
    resolver: Resolver = field(default_factory=Resolver)
    # Each turn takes its own connections to Kafka, and memory for a page.
    receipts_turns: TenantTurns = field(default_factory=search_turns)
    letters_turns: TenantTurns = field(default_factory=search_turns)
    event_turns: TenantTurns = field(default_factory=search_turns)
    changes_turns: TenantTurns = field(default_factory=search_turns)
    # A request that waits for Spark takes neither a connection nor memory here.
    trial_turns: TenantTurns = field(default_factory=partial(search_turns, _TRIALS_AT_ONCE))
    # Requests that wait for future events.
    waiting: Watchers = field(default_factory=partial(Watchers, _WAITING_OF_A_TENANT, _WAITING_MAX))
    redrive_turns: TenantTurns = field(
        default_factory=partial(search_turns, _REDRIVES_AT_ONCE, wait_s=_REDRIVE_WAIT_S)
    )
    byte_budget: ByteBudget = field(
        default_factory=partial(ByteBudget, _BODIES_AT_ONCE * _BODY_BYTES_MAX)
    )

    def rehearsal(self) -> "ControlPlane":
        """Return a control plane that makes the same checks, but changes nothing."""
        store = RehearsalStore(self.store, lambda: self.configuration)
        # With a box that opens secrets, somebody could test guesses of a secret unnoticed.
        return replace(self, store=store, box=self.box.sealing_only(), is_rehearsal=True)

    def note(self, event: str, **facts: str) -> None:
        """Log a change, unless this is a rehearsal."""
        if not self.is_rehearsal:
            log.info(event, **facts)

    @property
    def configuration(self) -> Configuration:
        """The current configuration."""
        return self.config.configuration

    def check_bounds(self, tenant: str, more: Mapping[Bounded, int]) -> None:
        """Refuse a change that takes a tenant beyond a bound."""
        check_bounds(tenant, self.configuration, self.settings, more)

    async def change(
        self,
        config_key: bytes,
        edit: Callable[[Any], Awaitable[ConfigObject | None]] | None,
        *,
        by: Author,
        when: Preconditions,
        check: Callable[[Any], object] = lambda _: None,
        did: str = "",
    ) -> tuple[Any, Any]:
        """Write one object, or remove it; return the object before and after.

        The author is stored with the change, and so is `did` if it describes the change better.

        `edit` gets the newest object, or None, and may be called more than once. `check` comes
        first and refuses objects that the caller may not change: a condition must reveal nothing
        about somebody else's object.
        """
        check(self.configuration.object(config_key))
        before: ConfigObject | None = None
        after: ConfigObject | None = None

        async def record(configuration: Configuration) -> bytes | None:
            nonlocal before, after
            before = configuration.object(config_key)
            check(before)
            when.check(before)
            after = None if edit is None else await edit(before)
            return None if after is None else after.to_json()

        await self.store.change(config_key, record, by=by, did=did)
        return before, after


# Dependencies are coroutines even if they wait for nothing: FastAPI runs others in threads.
async def control_plane(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.control_plane
    # This gateway must know the objects that another gateway has just made.
    await plane.store.catch_up()
    return plane


Plane = Annotated[ControlPlane, Depends(control_plane)]
When = Annotated[Preconditions, Header()]


async def _asking(request: Request, plane: Plane) -> Caller:
    """Return the caller, whatever their permissions are."""
    headers = {name: value.decode("latin-1") for name, value in request.scope["headers"]}
    state = request.scope.get("state", {})
    return plane.callers.of_request(headers, state=state, now_ms=now_ms())


Asking = Annotated[Caller, Depends(_asking)]


def _caller(scope: Scope) -> Callable[[Request, Caller], Awaitable[Caller]]:
    async def caller(request: Request, asking: Asking) -> Caller:
        # Callers with the scope write or admin may also read.
        if scope != "read" or not asking.scopes & {"write", "admin"} or asking.origins is not None:
            asking.check(scope, origin=request.headers.get("origin"))
        return asking

    return caller


Reader = Annotated[Caller, Depends(_caller("read"))]
Admin = Annotated[Caller, Depends(_caller("admin"))]


async def _json_object(request: Request, plane: Plane, asking: Asking) -> dict[str, Any]:
    body = Body(
        request.receive,
        byte_budget=plane.byte_budget,
        tenant=asking.tenant,
        overdue_bytes=0,
        limits=BodyLimits.of(plane.settings, _BODY_BYTES_MAX),
    )
    try:
        raw = await body.read(request.headers.get("content-length"))
        raw.decode()
        given = msgspec.json.decode(raw or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("invalid_json", f"{error}.") from error
    except ClientGoneError as error:
        raise Problem("body_timeout", "The client disconnected.") from error
    finally:
        body.release()
    if not isinstance(given, dict):
        raise Problem("bad_object", "Send a JSON object.")
    return given


# Our own reader instead of the framework's: it has limits, and takes any content type.
JsonObject = Annotated[dict[str, Any], Depends(_json_object)]


async def _rehearsed(given: JsonObject, plane: Plane) -> ControlPlane:
    is_rehearsal = given.pop("dry_run", False)
    if not isinstance(is_rehearsal, bool):
        raise ConfigError("dry_run", "it must be true or false")
    return plane.rehearsal() if is_rehearsal else plane


# For changes that can be rehearsed: a body with `"dry_run": true` is checked and not stored.
ChangingPlane = Annotated[ControlPlane, Depends(_rehearsed)]


def named(given: Mapping[str, Any], **path: str) -> dict[str, Any]:
    """Return the members of the body and of the path; refuse a body that contradicts the path."""
    for name, value in path.items():
        if given.get(name, value) != value:
            raise ConfigError(name, f"it must be {value!r}, as in the path")
    return {**given, **path}


def strictly(item: Configured, before: Configured | None) -> Configured:
    """Refuse unknown settings; keep those that a newer Hifi has stored."""
    known = item.known_fields()
    for name, value in item.others.items():
        if name in known:
            raise ConfigError(f"{name}.{next(iter(value))}", "there is no such setting")
        raise ConfigError(name, f"there is no such setting; known: {', '.join(sorted(known))}")
    return item if before is None else replace(item, others=before.others)


def check_kept_name(
    gone: RemovedPipeline | RemovedTable | None, caller: Caller, *, code: str
) -> None:
    """Refuse a name that is still kept for its former owner."""
    if gone is not None and gone.tenant != caller.tenant:
        free_at = rfc3339(gone.removed_at_ms + REMOVED_KEPT_MS)
        raise Problem(
            code,
            f"The name {gone.name!r} belonged to another tenant, and is reserved until {free_at}:"
            " choose another name.",
            members={"free_at": free_at},
        )


def as_json(
    shown: Mapping[str, Any], *, item: ConfigObject | None = None, is_new: bool = False
) -> Response:
    """Return an answer, with the ETag of the object that it shows."""
    headers = {"etag": etag_of(item)} if item is not None else None
    body, status = msgspec.json.encode(shown), HTTPStatus.CREATED if is_new else HTTPStatus.OK
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def also(*codes: str) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that may answer with these problems, too."""
    return {PROBLEMS_MEMBER: codes}


def takes(members: Mapping[str, Any], *codes: str) -> dict[str, Any]:
    """Return the `openapi_extra` of a route whose body has these members, all optional."""
    schema = {"type": "object", "properties": members, "additionalProperties": False}
    return {**also(*codes), "requestBody": {"content": {"application/json": {"schema": schema}}}}
