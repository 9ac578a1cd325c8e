"""The page of channels, which report trouble to people, with links to change them."""

from console.page_request import PageRequest
from console.pages.channels.channel_changes import (
    CHANNELS,
    NEW,
    channel_links,
    may_change,
    to,
)
from console.parts.layout import Page, still_page
from console.parts.markup import NOTHING, Child, tag
from console.parts.pieces import code, done_note, nothing_yet, table
from console.parts.search_list import ListQuery, SearchList
from observe.notify.last_message import LastMessage
from shared import wording
from shared.config.access import DEFAULT_TENANT

_DONE = {"set": "The channel is saved.", "removed": "The channel is removed."}


async def channels_page(asked: PageRequest) -> Page:
    heard = "your tenant's destinations"
    if asked.viewer.tenant in {None, DEFAULT_TENANT}:
        heard = "all destinations, and an audit that does not check for losses"
    listed = SearchList(CHANNELS, "channel", {}, ListQuery.of(asked.fields, {}), asked.channels)
    rows: list[list[Child]] = [
        [
            code(each.name),
            each.via,
            to(each),
            ", ".join(sorted(concern.value for concern in each.about)) or "all",
            _said(asked.context.told.get(each.id)),
            channel_links(asked, each),
        ]
        for each in listed.shown
    ]
    none = "No channels yet, so nobody gets alerts. To create one: hifi channels create NAME"
    if asked.viewer.streams:
        none = "Channels report about all streams, so a key for only some streams cannot see them."
    heads = ("Channel", "Via", "To", "About", "Last message", "Change")
    return still_page(
        "Channels",
        CHANNELS,
        "channels",
        tag("h1", "Channels"),
        tag("p", f"Channels report trouble: {heard}.", class_="lead"),
        done_note(_DONE.get(asked.field("done"), "")),
        tag("p", tag("a", "New channel …", href=NEW)) if may_change(asked) else NOTHING,
        table(heads, rows, caption="Channels, by name") if rows else nothing_yet(none),
        listed.more,
    )


def _said(last: LastMessage | None) -> Child:
    if last is None:
        return wording.NONE
    if last.is_taken:
        return f"taken, {wording.to_minute(last.at_ms)}"
    return tag("span", f"not taken, {wording.to_minute(last.at_ms)}: {last.says}", class_="bad")
