"""`hifi tables`: sets up, shows and removes tables."""

from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control import removal
from deploy.cli.printing import harmless, print_json, print_table, talk
from shared.event.times import DAY_MS
from shared.runtime.control_client import ControlClient

app = typer.Typer(name="tables", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table's name.")]
_HOURS_MS, _MIB = 3_600_000, 1_048_576


@options.control_command(app)
def put(
    *,
    name: Name,
    written_by: Annotated[
        str | None, typer.Option(help="The pipeline that alone writes it; else it is over HTTP.")
    ] = None,
    retention_hours: Annotated[
        int | None, typer.Option(help="A row goes so long after it was written.", min=1)
    ] = None,
    row_bytes_max: Annotated[int | None, typer.Option(help="Of one row.", min=1)] = None,
    mib_max: Annotated[
        int | None, typer.Option(help="What all rows may take on a machine's disk.", min=1)
    ] = None,
    client: ControlClient,
) -> None:
    """Make a table, or set one anew; how long its rows stay is said on its first day.

    hifi tables put customers
    """
    body: dict[str, Any] = {"written_by": written_by}
    if retention_hours is not None:
        body["retention_ms"] = retention_hours * _HOURS_MS
    if row_bytes_max is not None:
        body["row_bytes_max"] = row_bytes_max
    if mib_max is not None:
        body["bytes_max"] = mib_max * _MIB
    print_json(client.call("PUT", "tables", name, body=body))


@options.control_command(app)
def show(name: Name, client: ControlClient) -> None:
    """Show what a table is set to, as JSON."""
    print_json(client.call("GET", "tables", name))


@options.control_command(app, "list")
def list_tables(*, as_json: options.AsJson = False, client: ControlClient) -> None:
    """List the tables there are, who writes them, and how long their rows stay."""
    tables = client.call("GET", "tables")["tables"]
    if as_json:
        print_json(tables)
        return
    print_table(("table", "written by", "rows stay"), [_cells(each) for each in tables])


@options.control_command(app)
def delete(*, name: Name, yes: removal.Yes = False, client: ControlClient) -> None:
    """Delete a table with all its rows."""
    client.call("GET", "tables", name)
    if not yes:
        talk.print("All its rows are deleted, everywhere.")
        typer.confirm(f"Delete {harmless(name)}?", abort=True, err=True)
    client.call("DELETE", "tables", name)
    talk.print(f"{harmless(name)} is deleted.")


def _cells(shown: dict[str, Any]) -> list[str]:
    writer, kept_ms = shown["written_by"], shown["retention_ms"]
    stays = "until they are deleted" if kept_ms is None else f"{kept_ms / DAY_MS:g} days"
    return [shown["name"], f"pipeline {writer}" if writer else "HTTP", stays]
