"""The list of tables, and a table's page: its writer, its readers, and lookups of its rows."""

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from console.control_session import TableRow, TableRows
from console.page_request import PageRequest
from console.parts.layout import Page, form, still_page
from console.parts.markup import Child, Safe, fragment, tag
from console.parts.pieces import (
    code,
    facts_list,
    links_to,
    nothing_yet,
    pager,
    section,
    table,
)
from shared import wording
from shared.config.configuration import Configuration
from shared.config.table import Table
from shared.runtime.control_client import RefusedError

PATH = "/tables"
_PIPELINES = "/pipelines"
# The maximum number of tables on one page.
_TABLES_MAX = 100
# Longer than any name or key.
_TEXT_CHARS_MAX = 1_000
# Characters of a row to show in a list; the row's own page shows more.
_ROW_CHARS_MAX = 300
# The same as for the payload of an event.
_WHOLE_CHARS_MAX = 20_000


async def tables_page(asked: PageRequest) -> Page:
    """Show one page of the tables that the viewer may see, by name."""
    text, after = asked.field("q")[:_TEXT_CHARS_MAX], asked.field("after")[:_TEXT_CHARS_MAX]
    configuration = asked.context.seen_by(asked.viewer).configuration
    names = sorted(name for name in configuration.tables if text in name)
    rest = [name for name in names if name > after]
    shown = [configuration.tables[name] for name in rest[:_TABLES_MAX]]
    count = wording.plural(len(names), "table") + (" with this in the name" if text else "")
    kept = {"q": text} if text else {}
    first = f"{PATH}?{urlencode(kept)}" if after else ""
    is_more = len(rest) > len(shown)
    further = f"{PATH}?{urlencode({**kept, 'after': shown[-1].name})}" if is_more else ""
    field = tag("input", name="q", value=text, size=24, autocomplete="off", spellcheck="false")
    return still_page(
        "Tables",
        PATH,
        "tables",
        tag("h1", "Tables"),
        tag("p", f"{count}." if names or text else "No table yet.", class_="lead"),
        form(
            "get",
            PATH,
            {},
            tag("label", "Name contains ", field),
            tag("button", "Find", type="submit"),
            class_="row card pad",
        ),
        _listed(shown, configuration)
        if shown
        else nothing_yet("To create one: hifi tables put NAME"),
        pager([("First page", first), ("Next page", further)], "More tables"),
        status=count,
    )


def _listed(tables: Iterable[Table], configuration: Configuration) -> Safe:
    readers: dict[str, list[str]] = {}
    for pipeline in configuration.pipelines.values():
        for name in pipeline.tables_from:
            readers.setdefault(name, []).append(pipeline.name)
    heads = ("Table", "Written by", "Looked up by", "Rows are kept", "Maximum size")
    rows: list[list[Child]] = [
        [
            links_to([each.name], PATH),
            _writer(each, configuration),
            links_to(sorted(readers.get(each.name, ())), _PIPELINES) or wording.NONE,
            _stay(each),
            wording.size(each.bytes_max),
        ]
        for each in tables
    ]
    return table(heads, rows, caption="Tables, by name", numbers_from=4)


async def table_page(asked: PageRequest) -> Page:
    """Show one table: its writer and readers, and the requested rows."""
    configuration = asked.context.seen_by(asked.viewer).configuration
    known = configuration.tables.get(asked.path.removeprefix(f"{PATH}/"))
    if known is None:
        raise HTTPException(404, "There is no such table, or it is not yours.")
    # Not stripped: a key may begin or end with a blank.
    key, prefix, after = (
        asked.fields.get(name, "")[:_TEXT_CHARS_MAX] for name in ("key", "prefix", "after")
    )
    here, status = f"{PATH}/{known.name}", ""
    content: list[Child] = [
        tag("p", tag("a", "Tables", href=PATH), " / table", class_="crumbs"),
        tag("h1", known.name),
        facts_list(_facts(known, configuration)),
        _forms(here, key, prefix),
    ]
    try:
        if key:
            answer = await asked.control.row(known.name, key)
            status = "Found" if answer.rows else "Not found"
            content += [_one(key, answer), _as_of(answer)]
        else:
            answer = await asked.control.rows(known.name, prefix=prefix, after=after)
            status = f"{wording.plural(len(answer.rows), 'row')} shown"
            content += [
                _rows(answer.rows, here, known.name),
                _around(here, prefix, answer, is_first=not after),
                _as_of(answer),
            ]
    except RefusedError as refused:
        # The copy of the table is being built or rebuilt: a later request finds it.
        if refused.status != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        content.append(nothing_yet(refused.detail))
    return still_page(known.name, PATH, "table", *content, status=status)


def _facts(known: Table, configuration: Configuration) -> list[tuple[str, Child]]:
    readers = sorted(
        each.name for each in configuration.pipelines.values() if known.name in each.tables_from
    )
    return [
        ("Written by", _writer(known, configuration)),
        (
            "Looked up by",
            links_to(readers, _PIPELINES) or "no pipeline; over HTTP by anyone with a key for it",
        ),
        ("Rows are kept", _stay(known)),
        ("Maximum size of a row", wording.size(known.row_bytes_max)),
        ("Maximum size of all rows", f"{wording.size(known.bytes_max)} on each machine's disk"),
        ("Kafka topic", code(known.topic)),
    ]


def _writer(known: Table, configuration: Configuration) -> Child:
    if known.written_by is None:
        return "HTTP"
    if known.written_by in configuration.pipelines:
        return links_to([known.written_by], _PIPELINES)
    return f"{known.written_by} (a pipeline that does not exist yet)"


def _stay(known: Table) -> str:
    if known.retention_ms is None:
        return "until they are deleted"
    return f"for {wording.duration(known.retention_ms / 1000)} after they were written"


def _forms(here: str, key: str, prefix: str) -> Safe:
    def field(name: str, value: str, **more: bool) -> Safe:
        return tag("input", name=name, value=value, size=28, autocomplete="off",
                   spellcheck="false", **more)  # fmt: skip

    return section(
        "Rows",
        form(
            "get",
            here,
            {},
            tag("label", "Key ", field("key", key, required=True)),
            tag("button", "Look up", type="submit"),
            class_="row card pad",
        ),
        form(
            "get",
            here,
            {},
            tag("label", "Keys that begin with ", field("prefix", prefix)),
            tag("button", "List rows", type="submit"),
            class_="row card pad",
        ),
    )


def _one(key: str, found: TableRows) -> Safe:
    if not found.rows:
        return nothing_yet("No row has this key.")
    (row,) = found.rows
    return fragment(
        tag("h3", code(key)),
        tag("p", f"Written at {wording.moment(row.time_ms)}, at offset {row.offset}.",
            class_="note"),
        tag("pre", _cut(row.text, _WHOLE_CHARS_MAX), tabindex="0", aria_label=f"The row of {key}"),
    )  # fmt: skip


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … and {len(text) - most:,} more"


def _rows(rows: Iterable[TableRow], here: str, name: str) -> Safe:
    listed: list[list[Child]] = [
        [
            tag("a", code(row.key), href=_path(here, key=row.key)),
            code(_cut(row.text, _ROW_CHARS_MAX)),
            wording.moment(row.time_ms),
            str(row.offset),
        ]
        for row in rows
    ]
    if not listed:
        return nothing_yet("No rows.")
    heads = ("Key", "Row", "Written at", "Offset")
    return table(heads, listed, caption=f"Rows of {name}, by key", numbers_from=3)


def _around(here: str, prefix: str, found: TableRows, *, is_first: bool) -> Safe:
    further = _path(here, prefix=prefix, after=found.next) if found.next else ""
    first = "" if is_first else _path(here, prefix=prefix)
    return pager([("First page", first), ("Next page", further)], "More rows")


def _as_of(found: TableRows) -> Safe:
    as_of = found.as_of
    age = wording.duration(as_of.age_ms / 1000)
    return tag(
        "p",
        f"As of offset {as_of.offset}, which was known to be the newest {age} ago.",
        class_="note",
    )


def _path(here: str, **asked: str) -> str:
    asked = {name: value for name, value in asked.items() if value}
    return f"{here}?{urlencode(asked, errors='replace')}" if asked else here
