"""The page of API keys: whose they are, what they allow, and revoking one."""

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from observe.console.page_request import PageRequest
from observe.console.parts import wording
from observe.console.parts.layout import Page, confirm_form, still_page
from observe.console.parts.markup import Child, Safe, tag
from observe.console.parts.pieces import code, done_note, table
from shared.config.access import ApiKey
from shared.runtime.clock import now_ms

log = structlog.get_logger()


async def keys_page(asked: PageRequest) -> Page:
    content: list[Child] = [
        tag("h1", "Keys"),
        tag("p", "Only hashes are kept, so no key can be shown again. ",
            code("hifi keys create NAME"), " makes a new one, ", code("hifi keys rotate NAME"),
            " a second secret for one that there is.", class_="lead"),
        done_note("The key is revoked." if asked.field("done") == "revoked" else ""),
        _rows(asked),
    ]  # fmt: skip
    return still_page("Keys", "/keys", "keys", content)


async def revoke_page(asked: PageRequest) -> Page:
    key = asked.key
    return still_page(
        "Revoke a key",
        "/keys",
        "confirm",
        tag("h1", "Revoke ", code(key.id), "?"),
        tag("p", "Whoever uses it is refused within two seconds, for good."),
        confirm_form(
            "/keys/revoke",
            asked.around,
            yes="Revoke it",
            no="Cancel",
            back="/keys",
            id=key.id,
            version=await asked.control.version("keys", key.id),
        ),
    )


async def revoke(asked: PageRequest) -> Response:
    key = asked.key
    if key.id == asked.viewer.key_id:
        raise HTTPException(403, "A key cannot revoke itself: sign in with another.")
    log.info("key.revoked", key_id=asked.viewer.key_id, revoked=key.id)
    await asked.control.change("DELETE", "keys", key.id, version=asked.field("version"))
    await asked.wait_until(lambda now: key.id not in now.configuration.keys)
    return RedirectResponse("/keys?done=revoked", status_code=303)


def _rows(asked: PageRequest) -> Safe:
    if not asked.keys:
        none = "There is no key yet. The first is made with the operator key: "
        made = code("hifi keys create root --scope admin")
        return tag("p", none, made, ".", class_="none")
    heads = ("Key", "Tenant", "May", "Streams", "Active secrets", "Expires", "Change")
    rows: list[list[Child]] = [
        [
            code(key.id),
            key.tenant,
            ", ".join(sorted(key.scopes)) + (", from pages" if key.kind == "browser" else ""),
            ", ".join(sorted(key.streams)) or "all",
            str(len(key.secrets)),
            _expiry(key),
            tag("a", "Revoke …", href=f"/keys/revoke?id={key.id}")
            if asked.viewer.may_change and key.id != asked.viewer.key_id
            else "",
        ]
        for key in sorted(asked.keys, key=lambda key: key.id)
    ]
    return table(heads, rows, caption="API keys")


def _expiry(key: ApiKey) -> str:
    if key.expires_at_ms is None:
        return "never"
    return wording.moment(key.expires_at_ms) if key.is_live(now_ms()) else "expired"
