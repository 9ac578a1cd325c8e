"""The page of API keys: whose they are, what they allow, and the ways to make and change them."""

from starlette.exceptions import HTTPException

from observe.console.page_request import PageRequest
from observe.console.pages.changes.key_changes import KEYS, NEW, key_links
from observe.console.parts import wording
from observe.console.parts.layout import Page, still_page
from observe.console.parts.markup import NOTHING, Child, Safe, tag
from observe.console.parts.pieces import code, done_note, nothing_yet, table
from shared.config.access import ApiKey
from shared.runtime.clock import now_ms

_DONE = {"revoked": "The key is revoked.", "ended": "Only its newest secret is good now."}


async def keys_page(asked: PageRequest) -> Page:
    if asked.viewer.has_link:
        raise HTTPException(403, "Keys are for those who have one, and not shown by a link.")
    content: list[Child] = [
        tag("h1", "Keys"),
        tag("p", "Only hashes are kept, so no key can be shown again. ",
            code("hifi keys create NAME"), " makes a new one, ", code("hifi keys rotate NAME"),
            " a second secret for one that there is.", class_="lead"),
        done_note(_DONE.get(asked.field("done"), "")),
        tag("p", tag("a", "New key …", href=NEW)) if asked.viewer.may_change else NOTHING,
        _rows(asked),
    ]  # fmt: skip
    return still_page("Keys", KEYS, "keys", content)


def _rows(asked: PageRequest) -> Safe:
    tenant = asked.field("tenant")
    keys = [key for key in asked.keys if tenant in {"", key.tenant}]
    if tenant and not keys:
        return nothing_yet(f"The tenant {tenant} has no key that you may see.")
    if not keys:
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
            key_links(asked, key),
        ]
        for key in sorted(keys, key=lambda key: key.id)
    ]
    return table(heads, rows, caption="API keys")


def _expiry(key: ApiKey) -> str:
    if key.expires_at_ms is None:
        return "never"
    return wording.moment(key.expires_at_ms) if key.is_live(now_ms()) else "expired"
