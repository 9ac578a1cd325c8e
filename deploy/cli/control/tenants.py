"""`hifi tenants`: sets, shows and removes the quotas of tenants."""

from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.printing import harmless, print_json, talk
from shared.runtime.control_client import ControlClient

app = typer.Typer(name="tenants", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]
# A quota of nothing is no quota; leave the option out for "without limit".
_MIN = 0.001


@options.control_command(app)
def show(name: Name, client: ControlClient) -> None:
    """Show a tenant's quotas, as JSON."""
    print_json(client.call("GET", "tenants", name))


@options.control_command(app)
def put(
    *,
    name: Name,
    requests_per_s: Annotated[float | None, typer.Option(min=_MIN)] = None,
    events_per_s: Annotated[float | None, typer.Option(min=_MIN)] = None,
    bytes_per_s: Annotated[float | None, typer.Option(min=_MIN)] = None,
    streams_max: Annotated[int | None, typer.Option(min=0)] = None,
    partitions_max: Annotated[int | None, typer.Option(min=0)] = None,
    destinations_max: Annotated[int | None, typer.Option(min=0)] = None,
    pipelines_max: Annotated[int | None, typer.Option(min=0)] = None,
    tables_max: Annotated[int | None, typer.Option(min=0)] = None,
    table_bytes_max: Annotated[int | None, typer.Option(min=0)] = None,
    keys_max: Annotated[int | None, typer.Option(min=0)] = None,
    functions: Annotated[
        str,
        typer.Option(help="Installed functions that its pipelines may call.", metavar="NAME,..."),
    ] = "",
    client: ControlClient,
) -> None:
    """Set a tenant's quotas, over all gateways together, and how much it may set up.

    What is not said has no limit; of streams, partitions, destinations, pipelines, tables and keys
    it is the gateway's (HIFI_GATEWAY_TENANT_STREAMS_MAX and so on).

    hifi tenants put acme --events-per-s 1000 --functions fraud.score
    """
    body: dict[str, Any] = {
        "requests_per_s": requests_per_s,
        "events_per_s": events_per_s,
        "bytes_per_s": bytes_per_s,
        "streams_max": streams_max,
        "partitions_max": partitions_max,
        "destinations_max": destinations_max,
        "pipelines_max": pipelines_max,
        "tables_max": tables_max,
        "table_bytes_max": table_bytes_max,
        "keys_max": keys_max,
        "functions": [each for each in functions.split(",") if each],
    }
    print_json(client.call("PUT", "tenants", name, body=body))


@options.control_command(app)
def delete(name: Name, client: ControlClient) -> None:
    """Remove a tenant's quotas; its keys and streams stay."""
    client.call("DELETE", "tenants", name)
    talk.print(f"{harmless(name)} has no quotas any more.")
