"""Forms that create a key, give it a second secret, end that rotation, and revoke the key.

Only the page that answers the form ever shows the secret.
"""

import math
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from console.page_request import PageRequest
from console.pages.changes.form_pages import (
    FormPage,
    NotReadError,
    check_field,
    text_field,
)
from console.pages.changes.questions import ChangeByForm, ChangeQuestion, done, same
from console.parts.layout import Page, render, still_page
from console.parts.markup import Child, Safe, fragment, tag
from console.parts.pieces import code, ways
from shared.config.access import DEFAULT_TENANT, ApiKey, read_text
from shared.event.times import DAY_MS
from shared.runtime.clock import now_ms
from shared.runtime.control_client import RefusedError

log = structlog.get_logger()

KEYS = "/keys"
NEW, ROTATE, RETIRE, REVOKE = f"{KEYS}/new", f"{KEYS}/rotate", f"{KEYS}/retire", f"{KEYS}/revoke"
_SCOPES = {"write": "send events", "read": "see settings and the outcomes of events",
           "admin": "create, change and remove things, and read event contents"}  # fmt: skip
_DAYS_MAX = 36_500


def key_links(asked: PageRequest, key: ApiKey) -> Child:
    """Return links to the pages that change a key."""
    if not asked.viewer.may_change:
        return ""
    links = [("Rotate …", ROTATE)]
    links += [("End rotation …", RETIRE)] if len(key.secrets) > 1 else []
    links += [("Revoke …", REVOKE)] if key.id != asked.viewer.key_id else []
    return ways((says, f"{path}?id={key.id}") for says, path in links)


async def new_page(asked: PageRequest) -> Page:
    return _form(asked).page(asked)


async def make(asked: PageRequest) -> Response:
    """Create the key and show its secret, or show the form again with the error."""
    name = asked.field("name")
    if name in {key.id for key in asked.keys}:
        return _form(asked).again(asked, f"A key {name} already exists.", 409)
    try:
        wanted = _wanted(asked)
        log.info("key.made", key_id=asked.viewer.key_id, made=name)
        made = await asked.control.put("keys", name, version="", body=wanted)
    except NotReadError as error:
        return _form(asked).again(asked, str(error), 422)
    except RefusedError as refusal:
        return _form(asked).again(asked, refusal.detail, refusal.status)
    await asked.wait_until(lambda now: name in now.configuration.keys)
    heading = fragment(code(name), " is created")
    return _secret(asked, "Key created", heading, made["key"], same(_command(name, wanted)))


async def rotate_page(asked: PageRequest) -> Page:
    drops = " The older of its two present secrets will be refused."
    return await _ask(
        asked,
        ("Give ", " a second secret?", "Create the secret"),
        "Its newest present secret stays valid as well, until you end the rotation."
        + (drops if len(asked.key.secrets) > 1 else ""),
        f"hifi keys rotate {asked.key.id}",
    )


async def rotate(asked: PageRequest) -> Response:
    key = asked.key
    log.info("key.rotated", key_id=asked.viewer.key_id, rotated=key.id)
    version = asked.field("version")
    made = await asked.control.change("POST", "keys", key.id, version=version, action="rotate")
    await asked.wait_until(lambda now: now.configuration.keys.get(key.id) != key)
    heading = fragment(code(key.id), " has a second secret")
    note = fragment("Replace the old secret with this one everywhere, then ",
                    tag("a", "end the rotation", href=f"{RETIRE}?id={key.id}"), ".")  # fmt: skip
    return _secret(asked, "Key rotated", heading, made["key"], note)


async def retire_page(asked: PageRequest) -> Page:
    own = " You are signed in with this key. If you used its older secret, you will be signed out."
    return await _ask(
        asked,
        ("End the rotation of ", "?", "End the rotation"),
        "Only its newest secret stays valid. Within two seconds, requests with the older one are"
        f" refused permanently.{own if asked.key.id == asked.viewer.key_id else ''}",
        f"hifi keys rotate {asked.key.id} --finish",
    )


async def retire(asked: PageRequest) -> Response:
    key, version = asked.key, asked.field("version")
    return await done(
        asked,
        "key.retired",
        asked.control.change("POST", "keys", key.id, version=version, action="retire"),
        seen=lambda now: now.configuration.keys.get(key.id) != key,
        back=f"{KEYS}?done=ended",
        retired=key.id,
    )


async def revoke_page(asked: PageRequest) -> Page:
    return await _ask(
        asked,
        ("Revoke ", "?", "Revoke"),
        "Within two seconds, requests with this key are refused permanently.",
        f"hifi keys revoke {asked.key.id}",
    )


async def revoke(asked: PageRequest) -> Response:
    key, version = asked.key, asked.field("version")
    if key.id == asked.viewer.key_id:
        raise HTTPException(403, "A key cannot revoke itself: sign in with another.")
    return await done(
        asked,
        "key.revoked",
        asked.control.change("DELETE", "keys", key.id, version=version),
        seen=lambda now: key.id not in now.configuration.keys,
        back=f"{KEYS}?done=revoked",
        revoked=key.id,
    )


async def _ask(asked: PageRequest, words: tuple[str, str, str], says: str, command: str) -> Page:
    key = asked.key
    question = ChangeQuestion(
        name=key.id,
        words=words,
        says=says,
        also=same(command),
        here=KEYS,
        back=KEYS,
        at=("keys", key.id),
        fields={"id": key.id},
    )
    return await question.page(asked)


def _form(asked: PageRequest) -> FormPage:
    is_first = "csrf" not in asked.fields
    may = [
        check_field(
            fragment(code(scope), f": {says}"),
            scope,
            is_checked=bool(asked.field(scope)) or (is_first and scope == "write"),
        )
        for scope, says in _SCOPES.items()
    ]
    content: list[Child] = [
        text_field("Name", "name", asked.field("name"), required=True,
                   hint="The secret contains it."),
        tag("fieldset", tag("legend", "Permissions"), may),
        text_field("Streams", "streams", asked.field("streams"),
                   hint="Comma-separated. Leave empty for all streams of the tenant."),
        text_field("Origins", "origins", asked.field("origins"),
                   hint="Comma-separated origins of web pages, such as https://shop.example. Fill"
                   " this in for a browser key, which can only write."),
        text_field("Days", "days", asked.field("days"), size=8,
                   hint="Days until the key expires. Leave empty for no expiry."),
        check_field("Requests must also carry a signature", "must_sign",
                    is_checked=bool(asked.field("must_sign"))),
    ]  # fmt: skip
    if asked.viewer.tenant in {None, DEFAULT_TENANT}:
        tenant = asked.field("tenant") or DEFAULT_TENANT
        content.insert(1, text_field("Tenant", "tenant", tenant, hint="Tenant that owns the key."))
    return FormPage(
        title="New key",
        heading="New key",
        here=KEYS,
        content=content,
        yes="Create",
        back=KEYS,
        command="hifi keys create NAME --scope SCOPE --stream STREAM",
    )


def _wanted(asked: PageRequest) -> dict[str, Any]:
    """Return the key in the API's format; the API validates it."""
    if not asked.field("name"):
        raise NotReadError("Enter a name.")
    origins = _listed(asked, "origins")
    wanted: dict[str, Any] = {
        "scopes": [scope for scope in _SCOPES if asked.field(scope)],
        "streams": _listed(asked, "streams"),
        "origins": origins,
        "kind": "browser" if origins else "secret",
        "must_sign": bool(asked.field("must_sign")),
    }
    if asked.field("tenant"):
        wanted["tenant"] = asked.field("tenant")
    if days := asked.field("days"):
        try:
            ends_ms = now_ms() + float(days) * DAY_MS
        except ValueError:
            ends_ms = math.nan
        if not now_ms() < ends_ms <= now_ms() + _DAYS_MAX * DAY_MS:
            raise NotReadError(f"Days must be a number up to {_DAYS_MAX:,}.")
        wanted["expires_at_ms"] = round(ends_ms)
    return wanted


def _command(name: str, wanted: dict[str, Any]) -> str:
    """Return the command that would have created the key; the gateway has accepted every word."""
    options = {"scope": wanted["scopes"], "stream": wanted["streams"], "origin": wanted["origins"]}
    words = [f"--{option} {value}" for option, values in options.items() for value in values]
    words += [f"--tenant {wanted['tenant']}"] if "tenant" in wanted else []
    words += ["--must-sign"] if wanted["must_sign"] else []
    return " ".join(["hifi keys create", name, *words])


def _listed(asked: PageRequest, name: str) -> list[str]:
    return sorted({each.strip() for each in asked.field(name).split(",")} - {""})


def _who_may_have(text: str) -> str:
    shown = read_text(text)
    if shown is not None and shown.kind == "browser":
        return "Web pages of its origins may contain this secret: the key can only write."
    return (
        "Anyone who has this secret can use all of its permissions. Keep it out of pages, logs and"
        " repositories."
    )


def _secret(asked: PageRequest, title: str, heading: Safe, text: str, note: Child) -> Response:
    content = (
        tag("h1", heading),
        tag("p", "This is its secret. It is shown only once and stored nowhere: copy it now.",
            class_="warn", role="alert"),
        tag("pre", text, tabindex="0", role="region", aria_label="The secret", class_="secret"),
        tag("p", "Send it as ", code("Authorization: Bearer …"), ". ", _who_may_have(text)),
        tag("p", note, class_="quiet"),
        tag("p", tag("a", "To the keys", href=KEYS)),
    )  # fmt: skip
    return HTMLResponse(render(still_page(title, KEYS, "secret", *content), asked.around))


CHANGES = {
    NEW: ChangeByForm(new_page, make),
    ROTATE: ChangeByForm(rotate_page, rotate),
    RETIRE: ChangeByForm(retire_page, retire),
    REVOKE: ChangeByForm(revoke_page, revoke),
}
