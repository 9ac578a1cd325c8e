"""The page of API keys: owners, permissions, and links to create and change keys."""

import asyncio
from collections.abc import Mapping, Sequence

from console.page_request import PageRequest
from console.pages.changes.key_changes import KEYS, NEW, key_links
from console.parts.layout import Page, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import code, done_note, table
from console.parts.search_list import ListQuery, SearchList
from shared import wording
from shared.config.access import ApiKey
from shared.runtime.clock import now_ms
from shared.runtime.setup_error import OperatorError

_DONE = {"revoked": "The key is revoked.", "ended": "Only its newest secret is valid now."}
_ONLY = {"": "all keys", "rotating": "keys with two secrets", "expired": "expired keys"}
# The longest wait of the page for the uses.
_USES_WITHIN_S = 2.0
# By id of the key: the last use of each of its secrets, the oldest secret first.
_Uses = Mapping[str, Sequence[int | None]]


async def keys_page(asked: PageRequest) -> Page:
    query, tenant = ListQuery.of(asked.fields, _ONLY), asked.field("tenant")
    matches = [
        key
        for key in sorted(asked.keys, key=lambda key: key.id)
        if query.text in key.id and tenant in {"", key.tenant} and _is_meant(key, query.only)
    ]
    kept = {"tenant": tenant} if tenant else {}
    listed = SearchList(KEYS, "key", _ONLY, query, matches, order="by name", kept=kept)
    whose: list[Child] = [f" Keys of the tenant {tenant}: ", tag("a", "all keys", href=KEYS), "."]
    content: list[Child] = [
        tag("h1", "Keys"),
        tag("p", "Hifi stores only hashes, so no secret can be shown again. ",
            code("hifi keys create NAME"), " creates a key, ", code("hifi keys rotate NAME"),
            " gives an existing key a second secret.", class_="lead"),
        done_note(_DONE.get(asked.field("done"), "")),
        tag("p", tag("a", "New key …", href=NEW)) if asked.viewer.may_change else NOTHING,
        listed.search,
        tag("p", listed.said, whose if tenant else "", "" if asked.keys else _first()),
        _rows(asked, listed.shown, await _uses(asked)) if matches else NOTHING,
        listed.more,
    ]  # fmt: skip
    return still_page("Keys", KEYS, "keys", content, status=listed.said)


def _first() -> Safe:
    made = code("hifi keys create root --scope admin")
    return fragment(" Create the first key with the operator key: ", made, ".")


def _is_meant(key: ApiKey, only: str) -> bool:
    if only == "rotating":
        return len(key.secrets) > 1
    return only != "expired" or not key.is_live(now_ms())


async def _uses(asked: PageRequest) -> _Uses:
    """Return the uses that the gateway reports in time; empty for viewers who may only read."""
    if not asked.viewer.may_change:
        return {}
    try:
        async with asyncio.timeout(_USES_WITHIN_S):
            return await asked.control.key_uses()
    except (OperatorError, TimeoutError):
        return {}


def _rows(asked: PageRequest, keys: Sequence[ApiKey], uses: _Uses) -> Safe:
    heads = ("Key", "Tenant", "Scopes", "Streams", "Active secrets", "Last used", "Expires",
             "Change")  # fmt: skip
    rows: list[list[Child]] = [
        [
            code(key.id),
            key.tenant,
            ", ".join(sorted(key.scopes)) + (", from pages" if key.kind == "browser" else ""),
            ", ".join(sorted(key.streams)) or "all",
            str(len(key.secrets)),
            _last_use(uses.get(key.id, ())),
            _expiry(key),
            key_links(asked, key),
        ]
        for key in keys
    ]
    return table(heads, rows, caption="API keys")


def _last_use(used: Sequence[int | None]) -> str:
    """Return the last use of a key, and during a rotation also that of its older secret."""
    if not used:
        return wording.NONE
    newest = _used(max((at_ms for at_ms in used if at_ms), default=None))
    return f"{newest}; the older secret: {_used(used[0])}" if len(used) > 1 else newest


def _used(at_ms: int | None) -> str:
    return "not within a year" if at_ms is None else f"{wording.moment(at_ms)[:16]}Z"


def _expiry(key: ApiKey) -> str:
    if key.expires_at_ms is None:
        return "never"
    return wording.moment(key.expires_at_ms) if key.is_live(now_ms()) else "expired"
