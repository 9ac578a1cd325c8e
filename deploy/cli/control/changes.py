"""`hifi changes`: lists the changes that the gateway has recorded, and who made them."""

import json
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control.dead import time_ms
from deploy.cli.printing import Form, harmless, print_data, print_list, talk, when
from shared.event.times import rfc3339
from shared.runtime.control_client import ControlClient

app = typer.Typer(name="changes", no_args_is_help=True)

# One screen of changes; --limit shows more.
_LIMIT_DEFAULT = 50
# The gateway returns at most this many at once.
_PAGE = 1_000


@app.callback()
def _changes() -> None:
    """Keep `list` a subcommand: with a single command, typer would drop its name."""


def _filters(
    *,
    kind: Annotated[
        str | None,
        typer.Option(help="Kind of object: stream, destination, pipeline, table, key, tenant."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the object: STREAM/DESTINATION.")
    ] = None,
    contains: Annotated[str | None, typer.Option(help="Search by part of the name.")] = None,
    by: Annotated[str | None, typer.Option(help="Only changes made with this key.")] = None,
    did: Annotated[
        str | None, typer.Option(help="Kind of change: created, changed, deleted, paused ...")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="Made since 2026-11-21T10:00Z, or 2h for 2 h ago."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Made before this time.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant; only for operators.")] = None,
) -> dict[str, str]:
    """Return the options as query parameters of the gateway."""
    times = {"from": time_ms("--from", since), "to": time_ms("--to", to)}
    texts = {"kind": kind, "name": name, "contains": contains, "by": by, "did": did}
    texts |= {each: None if at_ms is None else rfc3339(at_ms) for each, at_ms in times.items()}
    return {each: text for each, text in {**texts, "tenant": tenant}.items() if text}


@options.control_command(app, "list", filters=_filters)
def list_(
    *,
    limit: Annotated[int, typer.Option(help="Number of changes to show.", min=1)] = _LIMIT_DEFAULT,
    form: Form | None,
    filters: dict[str, str],
    client: ControlClient,
) -> None:
    """List changes and who made them, the newest first.

    hifi changes list --kind destination --name demo/sample --from 7d
    """
    changes: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next": ""}
    while page["next"] is not None and len(changes) < limit:
        more = {"before": page["next"]} if page["next"] else {}
        asked = {**filters, **more, "limit": str(min(limit - len(changes), _PAGE))}
        page = client.call("GET", "changes", query=asked)
        changes += page["changes"]
    is_all = page["next"] is None
    if form in {"json", "yaml"}:
        print_data(form, {"changes": changes, "is_all": is_all})
        return
    heads = ("when", "tenant", "by", "did", "what", "settings")
    print_list(form, changes, heads, _row, lambda change: f"{change['kind']}/{change['name']}")
    if not is_all:
        talk.print(f"there are more: --limit {limit * 10} shows them", style="dim")


def _row(change: dict[str, Any]) -> tuple[str, ...]:
    by = change["by"]
    return (
        when(change["at_ms"]),
        harmless(change["tenant"]),
        harmless(by["name"] or by["kind"]),
        harmless(change["did"]),
        f"{change['kind']} {harmless(change['name'])}",
        harmless(", ".join(map(_setting, change["settings"])))
        + (f" and {change['left_out']} more" if change["left_out"] else ""),
    )


def _setting(setting: dict[str, Any]) -> str:
    values = [
        json.dumps(setting[side], ensure_ascii=False)
        for side in ("before", "after")
        if side in setting
    ]
    return f"{setting['name']} {' > '.join(values)}".rstrip()
