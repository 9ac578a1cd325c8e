"""`hifi tables`: sets up, shows and removes tables."""

from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control import removal
from deploy.cli.printing import Form, harmless, print_list, print_one, talk
from shared.event.times import DAY_MS
from shared.runtime.control_client import ControlClient

app = typer.Typer(name="tables", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table's name.")]
_HOURS_MS, _MIB = 3_600_000, 1_048_576


@options.control_command(
    app,
    "put",
    create="Create a table; refused if there is one with that name.",
    update="Change some settings of a table; all others stay.",
)
def put(
    *,
    name: Name,
    written_by: Annotated[
        str | None, typer.Option(help="The only pipeline that writes it. Default: HTTP.")
    ] = None,
    retention_hours: Annotated[
        int | None, typer.Option(help="Hours that a row is kept after it was written.", min=1)
    ] = None,
    row_bytes_max: Annotated[int | None, typer.Option(help="Largest row.", min=1)] = None,
    mib_max: Annotated[
        int | None, typer.Option(help="Disk space for all rows, on each machine.", min=1)
    ] = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Create a table or replace its settings; the retention of rows cannot be changed later.

    hifi tables put customers
    """
    body: dict[str, Any] = {}
    if written_by is not None:
        body["written_by"] = written_by
    if retention_hours is not None:
        body["retention_ms"] = retention_hours * _HOURS_MS
    if row_bytes_max is not None:
        body["row_bytes_max"] = row_bytes_max
    if mib_max is not None:
        body["bytes_max"] = mib_max * _MIB
    print_one(form, client.call("PUT", "tables", name, body=body), name=name)


@options.control_command(app, "get", alias="show")
def show(name: Name, form: Form | None, client: ControlClient) -> None:
    """Show a table's settings as JSON."""
    print_one(form, client.call("GET", "tables", name), name=name)


@options.control_command(app, "list")
def list_tables(*, form: Form | None, client: ControlClient) -> None:
    """List all tables, who writes them, and how long their rows stay."""
    tables = client.call("GET", "tables")["tables"]
    print_list(form, tables, ("table", "written by", "rows stay"), _cells)


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
