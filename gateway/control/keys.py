"""Routes to make and show API keys and links, and to set tenants' quotas.

Answers never show a key's hashes, only how many of its texts are valid.
"""

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter

from gateway.authors import Author
from gateway.callers import Caller, Uses
from gateway.control.bounds import bounds_of
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
    takes,
)
from gateway.intake.admission import ACCEPT_POST
from gateway.intake.encodings import ENCODINGS
from gateway.problems import Problem
from shared.config.access import (
    DEFAULT_TENANT,
    ENTROPY_BYTES,
    LINK_LASTS_MS_MAX,
    ApiKey,
    KeyKind,
    Secret,
    Tenant,
    ViewLink,
    is_within,
    new_text,
    read_text,
    secret_from,
)
from shared.config.model import ConfigError
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import config_key
from shared.runtime.clock import now_ms
from shared.runtime.tokens.links import LINK_CHARS_MAX, link_key_of, write_link

log = structlog.get_logger()
router = APIRouter()
_LINK = TypeAdapter(ViewLink)
_NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "default": []}

_LIMITS = (
    *("body_bytes_max", "decompressed_bytes_max", "ratio_max", "events_max", "event_bytes_max"),
    *("json_depth_max", "head_bytes_max", "beacon_bytes_max"),
    *("ack_deadline_s", "receive_deadline_s", "receive_total_s"),
)


@router.get("/v1/limits", response_model=dict[str, Any])
async def show_limits(caller: Reader, plane: Plane) -> Response:
    """Show all limits that apply to senders, with the caller's quotas and bounds."""
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
    ours = [shown(key, plane.callers.uses) for key in keys if _sees(caller, key)]
    return as_json({"keys": ours})


@router.get("/v1/keys/{key}", response_model=ApiKey)
async def show_key(key: PathName, caller: Admin, plane: Plane) -> Response:
    item = plane.configuration.keys.get(key)
    if item is None or not _sees(caller, item):
        raise _unknown_key()
    return as_json(shown(item, plane.callers.uses), item=item)


@router.put(
    "/v1/keys/{key}",
    response_model=ApiKey,
    responses={201: {"model": ApiKey}},
    openapi_extra=also("key_in_use", "bound_reached"),
)
async def put_key(
    key: PathName, caller: Admin, given: JsonObject, plane: Plane, when: When
) -> Response:
    """Make a key. Only this answer shows its text."""
    tenant = given.setdefault("tenant", caller.tenant)
    if not isinstance(tenant, str) or not _is_in_charge(caller, tenant):
        raise Problem("scope_missing", "You can make keys for your own tenant only.")
    # Invalid kinds are refused below, where the key is built.
    is_browser = given.get("kind") == "browser"
    text = _new_text("browser" if is_browser else "secret", key)

    def check_new(known: ApiKey | None) -> None:
        if known is not None:
            if _is_in_charge(caller, known.tenant):
                when.check(known)
            raise Problem("key_in_use", f"There is a key {key!r} already: rotate or delete it.")

    async def edit(_: ApiKey | None) -> ApiKey:
        if "secrets" in given:
            raise ConfigError("secrets", "only the gateway makes them")
        if given.get("expires_at_ms") is None:
            given["expires_at_ms"] = _until_ms(caller, plane)
        unread = [{"hash": secret_from(text, signs=False).hash}]
        item = strictly(ApiKey.of({**named(given, id=key), "secrets": unread}), None)
        item = replace(item, secrets=(_secret_of(item, text),))
        caller.check_grant(item)
        _check_new_text(item, caller, plane)
        plane.check_bounds(item.tenant, {"keys": 1})
        return item

    return await _store(plane, key, edit, when, by=caller.author, check=check_new, text=text)


@router.post("/v1/keys/{key}/rotate", response_model=ApiKey)
async def rotate_key(key: PathName, caller: Admin, plane: Plane, when: When) -> Response:
    """Give a key a second secret. Both are valid until `retire` or the next rotation."""

    def check(known: ApiKey | None) -> ApiKey:
        _check_new_text(checked := _checked(known, caller), caller, plane)
        return checked

    text = _new_text(check(plane.configuration.keys.get(key)).kind, key)

    async def edit(before: ApiKey) -> ApiKey:
        return before.with_new(_secret_of(before, text))

    return await _store(plane, key, edit, when, by=caller.author, check=check, text=text)


@router.post("/v1/keys/{key}/retire", response_model=ApiKey)
async def retire_key(key: PathName, caller: Admin, plane: Plane, when: When) -> Response:
    """Make the newest text of the key the only valid one."""

    async def edit(before: ApiKey) -> ApiKey:
        return before.with_newest_only()

    check = partial(_checked, caller=caller)
    return await _store(plane, key, edit, when, by=caller.author, check=check)


@router.delete("/v1/keys/{key}", status_code=204, response_class=Response)
async def delete_key(key: PathName, caller: Admin, plane: Plane, when: When) -> None:
    check = partial(_checked, caller=caller)
    await plane.change(config_key("key", key), None, by=caller.author, when=when, check=check)
    log.info("key.removed", key=key, tenant=caller.tenant)


@router.post(
    "/v1/links",
    status_code=201,
    response_model=dict[str, Any],
    openapi_extra=takes(
        {
            "tenant": {"type": "string"},
            "streams": _NAMES,
            "origins": _NAMES,
            "lasts_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": LINK_LASTS_MS_MAX // 1000,
                "default": HOUR_MS // 1000,
            },
        },
        "unknown_stream",
    ),
)
async def make_link(request: Request, caller: Admin, given: JsonObject, plane: Plane) -> Response:
    """Make a link that shows the console as to a reader, at the `path` in the answer.

    Nothing is stored.

    `tenant` (default: your own), `streams` (all), `origins` of pages that may show it in a frame
    (none), `lasts_s` (3600, at most 86400). The link also ends when your key does.
    """
    text = request.headers.get("authorization", "").partition(" ")[2].strip()
    shown, at_ms = read_text(text), now_ms()
    key = None if shown is None else plane.configuration.keys.get(shown.key_id)
    secret = None if key is None or shown is None else key.secret_of(shown)
    if key is None or secret is None or not key.is_live(at_ms):
        raise Problem(
            "scope_missing",
            "Only an API key with the scope admin can sign a link, and the link ends with the key."
            " Make a key (`hifi keys create NAME --scope admin`), even if you are the operator, and"
            " send this request with it.",
        )
    if not secret.link_key and "admin" in key.scopes:
        raise Problem("scope_missing", "This key was made before Hifi had links: rotate it first.")
    link = _link_of(given, key, at_ms=at_ms)
    if not link.is_granted_by(key):
        raise Problem("scope_missing", "The link would show more than this key may read.")
    for name in link.streams:
        stream = plane.configuration.streams.get(name)
        if stream is None or stream.tenant != link.tenant:
            detail = f"The tenant {link.tenant!r} has no stream {name!r}."
            raise Problem("unknown_stream", detail, pointer="/streams")
    made = write_link(link, text)
    if len(made) > LINK_CHARS_MAX:
        raise ConfigError("streams", "there are too many names for one link")
    log.info("link.made", key=key.id, tenant=link.tenant, by=caller.kind)
    answer = {**_LINK.dump_python(link, mode="json"), "link": made, "path": f"/embed/{made}/"}
    return as_json(answer, is_new=True)


def _link_of(given: Mapping[str, Any], key: ApiKey, *, at_ms: int) -> ViewLink:
    """Return the requested link; ConfigError names the invalid member."""
    asked: dict[str, Any] = {"tenant": key.tenant, "streams": sorted(key.streams)}
    asked["lasts_s"] = HOUR_MS // 1000
    known = {*asked, "origins"}
    for name in given.keys() - known:
        raise ConfigError(name, f"there is no such setting; known: {', '.join(sorted(known))}")
    asked |= given
    lasts_s, longest_s = asked.pop("lasts_s"), LINK_LASTS_MS_MAX // 1000
    if type(lasts_s) not in {int, float} or not 0 < lasts_s <= longest_s:
        raise ConfigError("lasts_s", f"it must be a number of seconds, at most {longest_s}")
    ends_ms = at_ms + round(lasts_s * 1000)
    if key.expires_at_ms is not None:
        ends_ms = min(ends_ms, key.expires_at_ms)
    return _LINK.validate_json(json.dumps({**asked, "key": key.id, "expires_at_ms": ends_ms}))


@router.get("/v1/tenants", response_model=dict[str, list[Tenant]])
async def list_tenants(caller: Reader, plane: Plane) -> Response:
    """List the tenants with quotas; a tenant's own key sees only that tenant."""
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


def shown(key: ApiKey, uses: Uses) -> dict[str, Any]:
    fields = key.known_fields()
    del fields["secrets"]
    # Oldest text first: before ending a rotation, people check whether it is still in use.
    used = [uses.last_ms(secret) for secret in key.secrets]
    last = max((at_ms for at_ms in used if at_ms), default=None)
    return {**fields, "live_texts": len(used), "last_used_at_ms": last, "texts_used_at_ms": used}


def _secret_of(key: ApiKey, text: str) -> Secret:
    """Return the stored form of one of the key's texts."""
    secret = secret_from(text, signs=key.must_sign)
    return replace(secret, link_key=link_key_of(text)) if "admin" in key.scopes else secret


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
    # Only the answer that makes a key's text shows it.
    answer = shown(after, plane.callers.uses) | ({"key": text} if text else {})
    return as_json(answer, item=after, is_new=before is None)


def _checked(key: ApiKey | None, caller: Caller) -> ApiKey:
    """Return the key if the caller may change or end it, that is, if they could have made it."""
    if key is None or not _is_in_charge(caller, key.tenant):
        raise _unknown_key()
    caller.check_grant(key)
    return key


def _until_ms(caller: Caller, plane: ControlPlane) -> int | None:
    """Return the latest expiry of keys that this caller makes or rotates; None for no limit."""
    days = plane.settings.keys_by_token_days
    return now_ms() + days * DAY_MS if caller.kind == "token" and days else None


def _check_new_text(key: ApiKey, caller: Caller, plane: ControlPlane) -> None:
    """Refuse a new text that would be valid for longer than a caller with a token may grant."""
    until_ms = _until_ms(caller, plane)
    if until_ms is not None and (key.expires_at_ms is None or key.expires_at_ms > until_ms):
        days = plane.settings.keys_by_token_days
        raise Problem(
            "scope_missing",
            f"With a token you can make and rotate only keys that end within {days} days"
            f" (expires_at_ms {until_ms} at most). Use a key instead, or have the operator change"
            " HIFI_GATEWAY_KEYS_BY_TOKEN_DAYS.",
            pointer="/expires_at_ms",
        )


def _sees(caller: Caller, key: ApiKey) -> bool:
    return _is_in_charge(caller, key.tenant) and is_within(key.streams, caller.streams)


def _unknown_key() -> Problem:
    return Problem("unknown_key", "GET /v1/keys lists your keys.")


def _unknown_tenant() -> Problem:
    return Problem("unknown_tenant", "No tenant of that name has quotas.")


def _is_in_charge(caller: Caller, tenant: str) -> bool:
    """Return whether the tenant is the caller's, or the caller is an operator for all streams."""
    return caller.tenant == tenant or (caller.tenant == DEFAULT_TENANT and not caller.streams)
