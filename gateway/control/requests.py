"""Shared parts of all control plane routes: callers, their bodies, and how a change is made.

A change is judged on the newest object there is and stored in one step for all gateways, so that
nobody's change is lost to somebody else's (see ControlStore).
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
# Re-drives wait most of their 20 s for their rate, so more of them run at once than lists; the next
# one waits for as long as one takes, and a little.
_REDRIVES_AT_ONCE, _REDRIVE_WAIT_S = 4, 25.0
# Each waiting request has a connection of its own to Kafka.
_WAITING_OF_A_TENANT, _WAITING_MAX = 8, 64


Configured = TypeVar("Configured", bound=ConfigObject)
# The name of an object, in its path. An impossible name is answered as an unknown one.
PathName = Annotated[str, Path(json_schema_extra={"pattern": f"^{NAME_PATTERN.pattern}$"})]


def _time_ms(text: object) -> int:
    try:
        at = datetime.fromisoformat(str(text))
        at_ms = round(at.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ValueError("it is not a time such as 2026-11-21T10:00:00Z") from error
    if at.tzinfo is None:
        raise ValueError("it is not a time with a zone, such as 2026-11-21T10:00:00Z")
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
    """The things that the routes work with; one for each application."""

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
    # Takes a tenant; Problem when it resends too often.
    charge_resend: Callable[[str], None]
    charge_channel_test: Callable[[str], None]
    places: EventPlaces
    try_pipeline: Callable[[TrialAsked], Awaitable[TrialAnswer | None]]
    try_channel: Callable[[ChannelAsked], Awaitable[ChannelAnswer | None]]
    is_rehearsal: bool = False
    resolver: Resolver = field(default_factory=Resolver)
    # Each of these takes connections of its own to Kafka, and memory for a page.
    receipts_turns: TenantTurns = field(default_factory=search_turns)
    letters_turns: TenantTurns = field(default_factory=search_turns)
    event_turns: TenantTurns = field(default_factory=search_turns)
    changes_turns: TenantTurns = field(default_factory=search_turns)
    # A request that waits for Spark holds nothing here.
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
        """Return a control plane that judges as this one does, and changes nothing."""
        store = RehearsalStore(self.store, lambda: self.configuration)
        # The box must not open secrets: somebody could try one after the other unnoticed.
        return replace(self, store=store, box=self.box.sealing_only(), is_rehearsal=True)

    def note(self, event: str, **facts: str) -> None:
        """Log a change, unless this is a rehearsal."""
        if not self.is_rehearsal:
            log.info(event, **facts)

    @property
    def configuration(self) -> Configuration:
        """The configuration as of now."""
        return self.config.configuration

    def check_bounds(self, tenant: str, more: Mapping[Bounded, int]) -> None:
        """Refuse, within a change, more than a tenant may have."""
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
        """Write one object, or remove it; return the object before, and after.

        The author is stored with it, and `did`, if that is a better word for the change.

        `edit` gets the newest object, None when there is none, and may be asked more than once.
        `check` comes first and refuses objects that are not for the caller to change: a condition
        must tell nothing about somebody else's object.
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


# Dependencies are coroutines, also where they wait for nothing: others are sent to threads.
async def control_plane(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.control_plane
    # A gateway must know the objects that another one has just made.
    await plane.store.catch_up()
    return plane


Plane = Annotated[ControlPlane, Depends(control_plane)]
When = Annotated[Preconditions, Header()]


async def _asking(request: Request, plane: Plane) -> Caller:
    """The caller, with whatever permissions they have."""
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
        raise Problem("body_timeout", "The client left.") from error
    finally:
        body.release()
    if not isinstance(given, dict):
        raise Problem("bad_object", "Send a JSON object.")
    return given


# Our own reader, not the framework's: it has bounds, and takes any content type.
JsonObject = Annotated[dict[str, Any], Depends(_json_object)]


async def _rehearsed(given: JsonObject, plane: Plane) -> ControlPlane:
    is_rehearsal = given.pop("dry_run", False)
    if not isinstance(is_rehearsal, bool):
        raise ConfigError("dry_run", "it is true or false")
    return plane.rehearsal() if is_rehearsal else plane


# For changes that can be rehearsed: a body with `"dry_run": true` is judged, and nothing stored.
ChangingPlane = Annotated[ControlPlane, Depends(_rehearsed)]


def named(given: Mapping[str, Any], **path: str) -> dict[str, Any]:
    """Return the sent members and those of the path; refuse them if they differ."""
    for name, value in path.items():
        if given.get(name, value) != value:
            raise ConfigError(name, f"it cannot be other than {value!r}, as the path says")
    return {**given, **path}


def strictly(item: Configured, before: Configured | None) -> Configured:
    """Refuse members that are no settings; those that a newer Hifi has stored stay."""
    known = item.known_fields()
    for name, value in item.others.items():
        if name in known:
            raise ConfigError(f"{name}.{next(iter(value))}", "there is no such setting")
        raise ConfigError(name, f"there is no such setting; there are {', '.join(sorted(known))}")
    return item if before is None else replace(item, others=before.others)


def check_kept_name(
    gone: RemovedPipeline | RemovedTable | None, caller: Caller, *, code: str
) -> None:
    """Refuse a name that is still kept for its former owner."""
    if gone is not None and gone.tenant != caller.tenant:
        free_at = rfc3339(gone.removed_at_ms + REMOVED_KEPT_MS)
        raise Problem(
            code,
            f"The name {gone.name!r} was somebody else's, and is kept until {free_at}:"
            " choose another.",
            members={"free_at": free_at},
        )


def as_json(
    shown: Mapping[str, Any], *, item: ConfigObject | None = None, is_new: bool = False
) -> Response:
    """Return an answer; if it shows an object, it carries the object's ETag."""
    headers = {"etag": etag_of(item)} if item is not None else None
    body, status = msgspec.json.encode(shown), HTTPStatus.CREATED if is_new else HTTPStatus.OK
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def also(*codes: str) -> dict[str, Any]:
    """Return a route's `openapi_extra` with problems that only it can answer with."""
    return {PROBLEMS_MEMBER: codes}


def takes(members: Mapping[str, Any], *codes: str) -> dict[str, Any]:
    """Return the same for a route that takes an object with these members, all optional."""
    schema = {"type": "object", "properties": members, "additionalProperties": False}
    return {**also(*codes), "requestBody": {"content": {"application/json": {"schema": schema}}}}
