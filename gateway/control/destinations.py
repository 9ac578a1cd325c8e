"""Routes to set up destinations: where a stream's events go, and how.

An address is checked here, so that its owner sees a refusal at once. Delivery checks it again at
each connection, because a name's addresses change. An unknown name is accepted with a warning.
"""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel

from gateway.callers import Caller
from gateway.control.changes.revision import Preconditions
from gateway.control.requests import (
    Admin,
    ChangingPlane,
    ControlPlane,
    JsonObject,
    PathName,
    Plane,
    Reader,
    When,
    also,
    as_json,
    named,
    strictly,
)
from gateway.control.sealing import Sealing, anew, sealed_fields, secrets_in, shown
from gateway.control.streams import RemovalNotice, listed
from gateway.problems import Problem, pointer_to
from shared.config.addresses import HostError, host_class, may_send, read_host
from shared.config.configuration import Configuration, RemovedDestination
from shared.config.credentials import OAuth2
from shared.config.destination import Destination
from shared.config.model import ConfigError
from shared.event.topics import config_key, destination_id
from shared.runtime.clock import now_ms
from shared.runtime.resolver import NoSuchHostError, ResolverDownError, ascii_host
from shared.runtime.secret_box import SecretBox, SecretUnavailableError

log = structlog.get_logger()

# A healthy resolver answers within this time; delivery checks the address again.
_RESOLVE_S = 2.0


router = APIRouter()

_PATH = "/v1/streams/{stream}/destinations/{destination}"


class DestinationList(BaseModel):
    destinations: list[Destination]
    removed: list[RemovalNotice]


@router.get("/v1/streams/{stream}/destinations", response_model=DestinationList)
async def list_destinations(stream: PathName, caller: Reader, plane: Plane) -> Response:
    """List a stream's destinations; for a removed stream, its former ones."""
    known = caller.past_stream(stream, plane.configuration)
    items = sorted(plane.configuration.destinations_of(stream), key=lambda each: each.name)
    gone = listed(plane.configuration.removed_from(known))
    return as_json({"destinations": [shown(each) for each in items], "removed": gone})


@router.get(_PATH, response_model=Destination)
async def show_destination(
    stream: PathName, destination: PathName, caller: Reader, plane: Plane
) -> Response:
    item = _known(stream, destination, caller, plane.configuration)
    return as_json(shown(item), item=item)


@router.put(
    _PATH,
    response_model=Destination,
    responses={201: {"model": Destination}},
    openapi_extra=also("target_forbidden", "secrets_off", "secret_changed", "bound_reached"),
)
async def put_destination(
    stream: PathName,
    destination: PathName,
    caller: Admin,
    given: JsonObject,
    *,
    plane: ChangingPlane,
    when: When,
) -> Response:
    caller.stream(stream, plane.configuration)
    # Clients send back an earlier answer, whose warning is no setting.
    given.pop("warning", None)

    async def edit(before: Destination | None) -> Destination:
        caller.stream(stream, plane.configuration)
        removed = plane.configuration.removed_destinations
        former = removed.get(destination_id(stream, destination))
        if before is None and former is not None:
            # A former destination continues at its old position, without its old pause or hold.
            given["resumed_at_ms"] = max(now_ms(), former.removed_at_ms + 1)
        elif before is None:
            plane.check_bounds(caller.tenant, {"destinations": 1})
        else:
            _keep_shards(given, before)
        wanted = _read(named(given, stream=stream, name=destination), before, plane.box)
        _check_order(wanted, plane.configuration)
        return wanted

    # Check the destination beforehand as well, so that no other change waits for a slow resolver.
    before = plane.configuration.destinations.get(destination_id(stream, destination))
    when.check(before)
    warnings = await _check_targets(plane, await edit(before), caller.tenant)
    key = config_key("destination", destination_id(stream, destination))
    before, after = await plane.change(key, edit, by=caller.author, when=when)
    plane.note("destination.written", destination=after.id, tenant=caller.tenant)
    warning = {"warning": warnings[-1]} if warnings else {}
    return as_json(shown(after) | warning, item=after, is_new=before is None)


@router.post(f"{_PATH}/resume", response_model=Destination)
async def resume_destination(
    stream: PathName, destination: PathName, caller: Admin, plane: Plane, when: When
) -> Response:
    """Try the destination now: end a pause, a hold, a disabling or an open breaker."""
    item = _known(stream, destination, caller, plane.configuration)

    async def edit(_: Destination | None) -> Destination:
        newest = _known(stream, destination, caller, plane.configuration)
        return newest.resumed(at_ms=now_ms())

    _, after = await plane.change(item.config_key, edit, by=caller.author, when=when)
    log.info("destination.written", destination=after.id, tenant=caller.tenant)
    return as_json(shown(after), item=after)


@router.delete(_PATH, status_code=204, response_class=Response)
async def delete_destination(
    stream: PathName, destination: PathName, caller: Admin, plane: Plane, when: When
) -> None:
    """Remove the destination. Its events that wait for a retry become dead letters."""
    item = _known(stream, destination, caller, plane.configuration)

    async def edit(_: Destination | None) -> RemovedDestination:
        newest = _known(stream, destination, caller, plane.configuration)
        # Never before it was resumed last, whatever the clock of that gateway said.
        at_ms = max(now_ms(), newest.resumed_at_ms)
        return RemovedDestination(
            stream, destination, caller.tenant, at_ms, starts_late=newest.starts_late
        )

    await plane.change(item.config_key, edit, by=caller.author, when=when)
    log.info("destination.removed", destination=item.id, tenant=caller.tenant)


class RotationResult(BaseModel):
    sealed_anew: int
    already_newest: int
    not_opened: list[str]


@router.post(
    "/v1/secrets:rotate",
    response_model=RotationResult,
    openapi_extra=also("secrets_off", "kafka_unavailable"),
)
async def rotate_secrets(caller: Admin, plane: Plane) -> Response:
    """Seal every secret again with the newest key, so that older keys can be removed."""
    caller.check_operator()
    if not plane.box.has_keys:
        raise Problem("secrets_off", "HIFI_SECRET_KEYS is not set for this gateway.")

    async def edit(newest: Sealing | None) -> Sealing | None:
        return None if newest is None else anew(newest, plane.box)

    result = RotationResult(sealed_anew=0, already_newest=0, not_opened=[])
    known = plane.configuration
    items: list[Sealing] = [
        *sorted(known.destinations.values(), key=lambda each: each.id),
        *sorted(known.pipelines.values(), key=lambda each: each.name),
        *sorted(known.channels.values(), key=lambda each: each.id),
    ]
    for item in items:
        secrets = set(secrets_in(item))
        old_count = sum(not plane.box.is_newest(secret) for secret in secrets)
        result.already_newest += len(secrets) - old_count
        try:
            if old_count:
                await plane.change(
                    item.config_key,
                    edit,
                    by=caller.author,
                    when=Preconditions(),
                    did="resealed",
                )
                result.sealed_anew += old_count
        except SecretUnavailableError:
            result.not_opened.append(item.config_key.decode().partition(":")[2])
    log.info("secrets.rotated", sealed_anew=result.sealed_anew, not_opened=result.not_opened)
    return as_json(result.model_dump())


def destination_of(stream: str, name: str, configuration: Configuration) -> Destination:
    """Return the destination of that name; raise Problem if the stream has none."""
    item = configuration.destinations.get(destination_id(stream, name))
    if item is None:
        raise Problem(
            "unknown_destination",
            f"{stream} has no destination {name[:100]!r};"
            f" GET /v1/streams/{stream}/destinations lists them.",
        )
    return item


def _known(stream: str, name: str, caller: Caller, configuration: Configuration) -> Destination:
    caller.stream(stream, configuration)
    return destination_of(stream, name, configuration)


def _keep_shards(given: dict[str, Any], before: Destination) -> None:
    """Refuse a new number of shards: for a while, two processes would send the same events."""
    if given.setdefault("shards", before.shards) != before.shards:
        raise ConfigError(
            "shards", f"it stays {before.shards}: make another destination and remove this one"
        )


def _check_order(wanted: Destination, configuration: Configuration) -> None:
    count = configuration.streams[wanted.stream].partition_count
    if wanted.order == "stream" and count > 1:
        raise ConfigError(
            "order",
            f"only a stream with one Kafka partition has an order; {wanted.stream} has {count}:"
            ' make a stream with partition_count 1, or set "key"',
        )


def _read(given: Mapping[str, Any], before: Destination | None, box: SecretBox) -> Destination:
    """Return the destination that a PUT describes; omitted settings are at their defaults."""
    resumed_at_ms = before.resumed_at_ms if before is not None else 0
    owner = destination_id(given["stream"], given["name"])
    sealed = sealed_fields(given, before=before, owner=owner, box=box)
    wanted = strictly(Destination.of({"resumed_at_ms": resumed_at_ms, **sealed}), before)
    if urlsplit(wanted.url).username is not None:
        raise ConfigError("url", "put the user and password into auth, where they are sealed")
    if before is not None and wanted.begins_anew(before):
        return wanted.begun_anew(at_ms=now_ms())
    return wanted


async def _check_targets(plane: ControlPlane, wanted: Destination, tenant: str) -> list[str]:
    """Refuse addresses that Hifi may not send to; return warnings about unknown ones."""
    targets = {"url": wanted.url}
    if isinstance(wanted.auth, OAuth2):
        targets["auth.token_url"] = wanted.auth.token_url
    warnings = [await check_target(plane, tenant, *target) for target in targets.items()]
    if wanted.proxy is not None:
        # The proxy may know names that this machine does not.
        warnings = [await check_target(plane, tenant, "proxy.url", wanted.proxy.url)]
    return [warning for warning in warnings if warning]


async def check_target(plane: ControlPlane, tenant: str, setting: str, url: str) -> str | None:
    """Refuse an address that Hifi may not send to; return a warning if its name is unknown."""
    allows_private = plane.settings.allow_private
    try:
        host = read_host(ascii_host(urlsplit(url).hostname or ""))
    except HostError as error:
        raise ConfigError(setting, str(error)) from error
    refusal = Problem(
        "target_forbidden",
        f"{setting}: Hifi sends to public addresses only"
        + (", and to private ones here. This is neither." if allows_private else "."),
        pointer=pointer_to(setting),
    )
    if host_class(host) == "never":
        raise refusal
    if not isinstance(host, str):
        addresses = [host]
    else:
        try:
            until_s = asyncio.get_running_loop().time() + _RESOLVE_S
            addresses = list(await plane.resolver(host, until_s, tenant))
        except (NoSuchHostError, ResolverDownError):
            return f"{setting}: no such name now: {host!r}. Events wait until it can be resolved."
    if not may_send(addresses, allows_private=allows_private):
        raise refusal
    return None
