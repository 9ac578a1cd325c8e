"""The page of API keys: whose they are, what they allow, and revoking one."""

from collections.abc import Sequence

from observe.console.parts import wording
from observe.console.parts.layout import Around, Page, confirm_form, still_page
from observe.console.parts.markup import Child, Safe, tag
from observe.console.parts.pieces import code, done_note, table
from shared.config.access import ApiKey


def keys_page(
    keys: Sequence[ApiKey], *, around: Around, may_revoke: bool, now_ms: int, done: str = ""
) -> Page:
    content: list[Child] = [
        tag("h1", "Keys"),
        tag("p", "Only hashes are kept, so no key can be shown again. New ones are made with ",
            code("PUT /v1/keys/NAME"), ".", class_="lead"),
        done_note(done),
        _rows(keys, around=around, may_revoke=may_revoke, now_ms=now_ms),
    ]  # fmt: skip
    return still_page("Keys", "/keys", "keys", content)


def revoke_page(key: ApiKey, *, version: str, around: Around) -> Page:
    return still_page(
        "Revoke a key",
        "/keys",
        "confirm",
        tag("h1", "Revoke ", code(key.id), "?"),
        tag("p", "Whoever uses it is refused within two seconds, for good."),
        confirm_form(
            "/keys/revoke",
            around,
            yes="Revoke it",
            no="Leave it",
            back="/keys",
            id=key.id,
            version=version,
        ),
    )


def _rows(keys: Sequence[ApiKey], *, around: Around, may_revoke: bool, now_ms: int) -> Safe:
    if not keys:
        return tag("p", "There is no key yet.", class_="none")
    heads = ("Key", "Tenant", "May", "Streams", "Live texts", "Expires", "")
    rows: list[list[Child]] = [
        [
            code(key.id),
            key.tenant,
            ", ".join(sorted(key.scopes)) + (", from pages" if key.kind == "browser" else ""),
            ", ".join(sorted(key.streams)) or "all",
            str(len(key.secrets)),
            _expiry(key, now_ms),
            tag("a", "Revoke …", href=f"/keys/revoke?id={key.id}")
            if may_revoke and key.id != around.key_id
            else "",
        ]
        for key in sorted(keys, key=lambda key: key.id)
    ]
    return table(heads, rows, caption="API keys")


def _expiry(key: ApiKey, now_ms: int) -> str:
    if key.expires_at_ms is None:
        return "never"
    return wording.moment(key.expires_at_ms) if key.is_live(now_ms) else "expired"
