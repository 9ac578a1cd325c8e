"""`hifi tenants`: sets, shows and removes the quotas of tenants."""

from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.printing import Form, harmless, print_list, print_one, talk
from shared.runtime.control_client import ControlClient

app = typer.Typer(name="tenants", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]
# A quota of 0 is refused; for no limit leave the option out.
_MIN = 0.001
_RATES = ("requests_per_s", "events_per_s", "bytes_per_s")


@options.control_command(app, "list")
def list_tenants(*, form: Form | None, client: ControlClient) -> None:
    """List the tenants that have quotas, and their rates; - means no limit."""
    heads = ("tenant", *(name.replace("_per_s", "/s") for name in _RATES))
    print_list(form, client.call("GET", "tenants")["tenants"], heads, _cells, numbers=len(_RATES))


@options.control_command(app, "get", alias="show")
def show(name: Name, form: Form | None, client: ControlClient) -> None:
    """Show a tenant's quotas, as JSON."""
    print_one(form, client.call("GET", "tenants", name), name=name)


@options.control_command(
    app,
    "put",
    create="Set the quotas of a tenant that has none yet.",
    update="Change some quotas of a tenant; all others stay.",
)
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
    channels_max: Annotated[int | None, typer.Option(min=0)] = None,
    keys_max: Annotated[int | None, typer.Option(min=0)] = None,
    functions: Annotated[
        str,
        typer.Option(help="Installed functions that its pipelines may call.", metavar="NAME,..."),
    ] = "",
    form: Form | None,
    client: ControlClient,
) -> None:
    """Set a tenant's quotas, for all gateways together, and how many objects it may create.

    Omitted rates have no limit. Omitted maximums, such as that of streams, are those of the gateway
    (HIFI_GATEWAY_TENANT_STREAMS_MAX and so on).

    hifi tenants put acme --events-per-s 1000 --functions fraud.score
    """
    quotas: dict[str, Any] = {
        "requests_per_s": requests_per_s,
        "events_per_s": events_per_s,
        "bytes_per_s": bytes_per_s,
        "streams_max": streams_max,
        "partitions_max": partitions_max,
        "destinations_max": destinations_max,
        "pipelines_max": pipelines_max,
        "tables_max": tables_max,
        "table_bytes_max": table_bytes_max,
        "channels_max": channels_max,
        "keys_max": keys_max,
        "functions": [each for each in functions.split(",") if each] or None,
    }
    body = {name: value for name, value in quotas.items() if value is not None}
    print_one(form, client.call("PUT", "tenants", name, body=body), name=name)


@options.control_command(app)
def delete(name: Name, client: ControlClient) -> None:
    """Remove a tenant's quotas; its keys and streams stay."""
    client.call("DELETE", "tenants", name)
    talk.print(f"{harmless(name)} has no quotas now.")


def _cells(shown: dict[str, Any]) -> list[str]:
    rates = (shown[name] for name in _RATES)
    return [harmless(shown["name"]), *("-" if rate is None else f"{rate:,.15g}" for rate in rates)]
