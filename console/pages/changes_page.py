"""The page of changes and their authors, with a search by object, author and time."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from console.page_request import PageRequest
from console.parts.layout import Page, Region, form, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import choice, code, nothing_yet, pager, section, table
from shared import wording
from shared.config.configuration import Configuration
from shared.runtime.setup_error import OperatorError

PATH = "/changes"
# The search fields, named as in the gateway's API.
_PICKED = ("kind", "name", "contains", "did", "by", "from", "to", "tenant")
_KINDS = (
    *("stream", "destination", "pipeline", "replacement", "table", "channel"),
    *("key", "tenant"),
)
_DEEDS = ("created", "changed", "deleted", "paused", "resumed", "tried now", "disabled", "rotated",
          "retired", "redriven", "replayed", "replay cancelled", "resealed", "put in place",
          "given up")  # fmt: skip
_TEXT_CHARS_MAX = 300
# The longest wait of a page for its last line.
_LAST_WITHIN_S = 2.0


async def changes_page(asked: PageRequest) -> Page:
    picked = {name: text for name in _PICKED if (text := asked.field(name)[:_TEXT_CHARS_MAX])}
    before = asked.number("before")
    listing = await asked.control.changes(picked, before=before)
    count = wording.plural(len(listing["changes"]), "change")
    content: list[Child] = [
        tag("h1", "Changes"),
        tag("p", "Every change and its author, newest first. Hifi keeps a tenant's last 10,000"
            " changes for a year. They contain no secrets.", class_="lead"),
        _choice(picked),
        _rows(listing, asked.context.configuration),
        _older(picked, listing, is_first=before is None),
    ]  # fmt: skip
    return still_page("Changes", PATH, "changes", content, status=f"{count} shown")


async def with_last_change(page: Page, asked: PageRequest, kind: str, name: str) -> Page:
    """Add an object's last change to its page if the gateway answers in time."""
    try:
        async with asyncio.timeout(_LAST_WITHIN_S):
            listing = await asked.control.changes({"kind": kind, "name": name}, count=1)
    except (OperatorError, TimeoutError):
        return page
    all_of_it = f"{PATH}?{urlencode({'kind': kind, 'name': name})}"
    sentence: Child = "No change is on record. "
    for last in listing["changes"]:
        what = [", ", _settings(last)] if last["settings"] else ""
        sentence = fragment(f"{last['did'].capitalize()} by ", _author(last), " at ",
                            wording.moment(last["at_ms"]), what, ". ")  # fmt: skip
    line = tag("p", sentence, tag("a", "All changes", href=all_of_it))
    region = Region("changed", section("Last change", line), is_live=False)
    return replace(page, regions=(*page.regions, region))


def _choice(picked: Mapping[str, str]) -> Safe:
    def field(label: str, name: str, **more: str) -> Safe:
        made = tag("input", name=name, value=picked.get(name, ""), autocomplete="off",
                   spellcheck="false", **more)  # fmt: skip
        return tag("label", f"{label} ", made)

    def select(label: str, name: str, values: tuple[str, ...]) -> Safe:
        anything = tag("option", "any", value="")
        return choice(label, name, values, picked.get(name, ""), first=anything)

    return form(
        "get",
        PATH,
        {name: picked[name] for name in ("tenant",) if name in picked},
        select("Kind", "kind", _KINDS),
        field("Name contains", "contains", size="24"),
        select("Action", "did", _DEEDS),
        field("Author", "by", size="16"),
        field("Since (UTC)", "from", type="datetime-local"),
        field("Before (UTC)", "to", type="datetime-local"),
        tag("button", "Find", type="submit"),
        tag("a", "Clear", href=PATH) if picked else NOTHING,
        class_="row card pad",
    )


def _rows(found: Mapping[str, Any], configuration: Configuration) -> Safe:
    if not found["changes"]:
        is_all = found["is_complete"]
        return nothing_yet(
            "No change found." if is_all else "None so far. Older changes are not searched yet."
        )
    rows: list[list[Child]] = [
        [
            tag("time", wording.moment(change["at_ms"])),
            _author(change),
            change["did"],
            fragment(f"{change['kind']} ", _object(change, configuration)),
            _settings(change) or wording.NONE,
            change["tenant"],
            wording.count(change["number"]),
        ]
        for change in found["changes"]
    ]
    heads = ("When", "Author", "Action", "Object", "Settings", "Tenant", "Number")
    return table(heads, rows, caption="Changes, newest first", numbers_from=6)


def _author(change: Mapping[str, Any]) -> Safe:
    by = change["by"]
    if not by["name"]:
        says = {"anybody": "somebody without a key", "operator": "the operator", "hifi": "Hifi"}
        return fragment(says.get(by["kind"], by["kind"]))
    return fragment(f"{by['kind']} ", code(by["name"]))


def _object(change: Mapping[str, Any], configuration: Configuration) -> Safe:
    """Return the object's name, with a link to its page if it still exists."""
    name = change["name"]
    there = {
        "stream": (configuration.streams, "/streams/"),
        "destination": (configuration.destinations, "/streams/"),
        "pipeline": (configuration.pipelines, "/pipelines/"),
        "replacement": (configuration.pipelines, "/pipelines/"),
        "table": (configuration.tables, "/tables/"),
    }
    known, below = there.get(change["kind"], ({}, ""))
    return tag("a", name, href=f"{below}{name}") if name in known else code(name)


def _settings(change: Mapping[str, Any]) -> str:
    settings = ", ".join(map(_setting, change["settings"]))
    return settings + (f" and {change['left_out']} more" if change["left_out"] else "")


def _setting(setting: Mapping[str, Any]) -> str:
    if "after" not in setting:
        return str(setting["name"])
    after = json.dumps(setting["after"], ensure_ascii=False)
    if "before" not in setting:
        return f"{setting['name']} {after}"
    return f"{setting['name']} {json.dumps(setting['before'], ensure_ascii=False)} → {after}"


def _older(picked: Mapping[str, str], found: Mapping[str, Any], *, is_first: bool) -> Safe:
    newest, more = f"{PATH}?{urlencode(picked)}" if picked else PATH, ""
    if found["next"]:
        more = f"{PATH}?{urlencode({**picked, 'before': found['next']})}"
    return pager([("Newest", "" if is_first else newest), ("Older", more)], "More changes")
