"""Routes to make and show API keys, and to set what a tenant may use.

A key's hashes stay inside: what is shown of its texts is how many are good.
"""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog
from fastapi import APIRouter, Response

from gateway.callers import Caller
from gateway.changes.record import Author
from gateway.changes.revision import Preconditions
from gateway.control.bounds import bounds_of
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
from gateway.intake.admission import ACCEPT_POST
from gateway.intake.encodings import ENCODINGS
from gateway.problems import Problem
from shared.config.access import (
    DEFAULT_TENANT,
    ENTROPY_BYTES,
    ApiKey,
    KeyKind,
    Tenant,
    new_text,
    secret_from,
)
from shared.config.model import ConfigError
from shared.event.topics import config_key

log = structlog.get_logger()
router = APIRouter()

_LIMITS = (
    *("body_bytes_max", "decompressed_bytes_max", "ratio_max", "events_max", "event_bytes_max"),
    *("json_depth_max", "head_bytes_max", "beacon_bytes_max"),
    *("ack_deadline_s", "receive_deadline_s", "receive_total_s"),
)


@router.get("/v1/limits", response_model=dict[str, Any])
async def show_limits(caller: Reader, plane: Plane) -> Response:
    """Everything that a sender has to keep to."""
    quotas = plane.configuration.tenants.get(caller.tenant)
    return as_json(
        {
            **{name: getattr(plane.settings, name) for name in _LIMITS},
            "content_types": ACCEPT_POST.split(", "),
            "content_encodings": list(ENCODINGS),
            "quotas": None if quotas is None else quotas.known_fields(),
            "bounds": bounds_of(caller.tenant, plane.configuration, plane.settings),
        }
    )


@router.get("/v1/keys", response_model=dict[str, list[ApiKey]])
async def list_keys(caller: Admin, plane: Plane) -> Response:
    keys = sorted(plane.configuration.keys.values(), key=lambda key: key.id)
    return as_json({"keys": [shown(key) for key in keys if _is_in_charge(caller, key.tenant)]})


@router.get("/v1/keys/{key}", response_model=ApiKey)
async def show_key(key: PathName, caller: Admin, plane: Plane) -> Response:
    item = _checked(plane.configuration.keys.get(key), caller)
    return as_json(shown(item), item=item)


@router.put(
    "/v1/keys/{key}",
    response_model=ApiKey,
    responses={201: {"model": ApiKey}},
    openapi_extra=also("key_in_use", "bound_reached"),
)
async def put_key(
    key: PathName, caller: Admin, given: JsonObject, plane: Plane, when: When
) -> Response:
    """Make a key. Its text is in this answer and nowhere else, ever."""
    tenant = given.setdefault("tenant", caller.tenant)
    if not isinstance(tenant, str) or not _is_in_charge(caller, tenant):
        raise Problem("scope_missing", "Keys are made for one's own tenant.")
    # Whatever else it may be is refused below, where the key is built.
    is_browser = given.get("kind") == "browser"
    text = _new_text("browser" if is_browser else "secret", key)
    secret = secret_from(text, signs=given.get("must_sign") is True)

    def check_new(known: ApiKey | None) -> None:
        if known is not None:
            if _is_in_charge(caller, known.tenant):
                when.check(known)
            raise Problem("key_in_use", f"There is a key {key!r}: rotate or delete it.")

    async def edit(_: ApiKey | None) -> ApiKey:
        if "secrets" in given:
            raise ConfigError("secrets", "they are made here")
        secrets = [{"hash": secret.hash, "signing_key": secret.signing_key}]
        item = strictly(ApiKey.of({**named(given, id=key), "secrets": secrets}), None)
        caller.check_grant(item)
        plane.check_bounds(item.tenant, {"keys": 1})
        return item

    return await _store(plane, key, edit, when, by=caller.author, check=check_new, text=text)


@router.post("/v1/keys/{key}/rotate", response_model=ApiKey)
async def rotate_key(key: PathName, caller: Admin, plane: Plane, when: When) -> Response:
    """A second text for a key: both are good, until `retire` or the next rotation."""
    check = partial(_checked, caller=caller)
    text = _new_text(check(plane.configuration.keys.get(key)).kind, key)

    async def edit(before: ApiKey) -> ApiKey:
        # Its new text is shown to the caller.
        caller.check_grant(before)
        return before.with_new(secret_from(text, signs=before.must_sign))

    return await _store(plane, key, edit, when, by=caller.author, check=check, text=text)


@router.post("/v1/keys/{key}/retire", response_model=ApiKey)
async def retire_key(key: PathName, caller: Admin, plane: Plane, when: When) -> Response:
    """From now on only the newest text of the key is good."""

    async def edit(before: ApiKey) -> ApiKey:
        return before.with_newest_only()

    check = partial(_checked, caller=caller)
    return await _store(plane, key, edit, when, by=caller.author, check=check)


@router.delete("/v1/keys/{key}", status_code=204, response_class=Response)
async def delete_key(key: PathName, caller: Admin, plane: Plane, when: When) -> None:
    check = partial(_checked, caller=caller)
    await plane.change(config_key("key", key), None, by=caller.author, when=when, check=check)
    log.info("key.removed", key=key, tenant=caller.tenant)


@router.get("/v1/tenants", response_model=dict[str, list[Tenant]])
async def list_tenants(caller: Reader, plane: Plane) -> Response:
    """Tenants that have quotas; of a tenant's own key, those of this tenant."""
    tenants = sorted(plane.configuration.tenants.values(), key=lambda each: each.name)
    ours = [each.known_fields() for each in tenants if _is_in_charge(caller, each.name)]
    return as_json({"tenants": ours})


@router.get("/v1/tenants/{tenant}", response_model=Tenant)
async def show_tenant(tenant: PathName, caller: Reader, plane: Plane) -> Response:
    item = plane.configuration.tenants.get(tenant)
    if item is None or not _is_in_charge(caller, tenant):
        raise _unknown_tenant()
    return as_json(item.known_fields(), item=item)


@router.put("/v1/tenants/{tenant}", response_model=Tenant, responses={201: {"model": Tenant}})
async def put_tenant(
    tenant: PathName, caller: Admin, given: JsonObject, plane: ChangingPlane, when: When
) -> Response:
    caller.check_operator()

    async def edit(before: Tenant | None) -> Tenant:
        return strictly(Tenant.of(named(given, name=tenant)), before)

    before, after = await plane.change(
        config_key("tenant", tenant), edit, by=caller.author, when=when
    )
    return as_json(after.known_fields(), item=after, is_new=before is None)


@router.delete("/v1/tenants/{tenant}", status_code=204, response_class=Response)
async def delete_tenant(tenant: PathName, caller: Admin, plane: Plane, when: When) -> None:
    caller.check_operator()

    async def edit(before: Tenant | None) -> None:
        if before is None:
            raise _unknown_tenant()

    await plane.change(config_key("tenant", tenant), edit, by=caller.author, when=when)


def shown(key: ApiKey) -> dict[str, Any]:
    fields = key.known_fields()
    live_texts = len(fields.pop("secrets"))
    return {**fields, "live_texts": live_texts}


def _new_text(kind: KeyKind, key_id: str) -> str:
    return new_text(kind=kind, key_id=key_id, entropy=os.urandom(ENTROPY_BYTES))


async def _store(
    plane: ControlPlane,
    key_id: str,
    edit: Callable[[Any], Awaitable[ApiKey]],
    when: Preconditions,
    *,
    by: Author,
    check: Callable[[ApiKey | None], object],
    text: str | None = None,
) -> Response:
    key = config_key("key", key_id)
    before, after = await plane.change(key, edit, by=by, when=when, check=check)
    log.info("key.written", key=after.id, tenant=after.tenant)
    # A key's text is shown once, to whoever has it made.
    return as_json(
        shown(after) | ({"key": text} if text else {}), item=after, is_new=before is None
    )


def _checked(key: ApiKey | None, caller: Caller) -> ApiKey:
    if key is None or not _is_in_charge(caller, key.tenant):
        raise Problem("unknown_key", "GET /v1/keys lists the keys there are.")
    return key


def _unknown_tenant() -> Problem:
    return Problem("unknown_tenant", "No quotas are set for a tenant of that name.")


def _is_in_charge(caller: Caller, tenant: str) -> bool:
    return caller.tenant in {tenant, DEFAULT_TENANT}
