"""The page of API keys: whose they are, what they allow, and revoking one."""

from observe.console.page_request import PageRequest
from observe.console.parts import wording
from observe.console.parts.layout import Page, confirm_form, still_page
from observe.console.parts.markup import Child, Safe, tag
from observe.console.parts.pieces import code, done_note, table
from shared.config.access import ApiKey
from shared.runtime.clock import now_ms


async def keys_page(asked: PageRequest) -> Page:
    content: list[Child] = [
        tag("h1", "Keys"),
        tag("p", "Only hashes are kept, so no key can be shown again. New ones are made with ",
            code("PUT /v1/keys/NAME"), ".", class_="lead"),
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
            no="Leave it",
            back="/keys",
            id=key.id,
            version=await asked.control.version("keys", key.id),
        ),
    )


def _rows(asked: PageRequest) -> Safe:
    if not asked.keys:
        return tag("p", "There is no key yet.", class_="none")
    heads = ("Key", "Tenant", "May", "Streams", "Live texts", "Expires", "")
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
