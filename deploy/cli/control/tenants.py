"""`hifi tenants`: sets, shows and removes the quotas of tenants."""

from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.control.control_client import ControlClient
from deploy.cli.printing import harmless, print_json, talk

app = typer.Typer(no_args_is_help=True, help="Quotas of tenants: put, show, delete.")

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]
# A quota of nothing is no quota; leave the option out for "without limit".
_MIN = 0.001


@app.command()
def show(
    name: Name, gateway: options.Gateway = options.GATEWAY_DEFAULT, api_key: options.ApiKey = None
) -> None:
    """Show a tenant's quotas, as JSON."""
    print_json(ControlClient(gateway, api_key).call("GET", "tenants", name))


@app.command()
def put(  # noqa: PLR0917 - typer makes an option of each
    name: Name,
    requests_per_s: Annotated[float | None, typer.Option(min=_MIN)] = None,
    events_per_s: Annotated[float | None, typer.Option(min=_MIN)] = None,
    bytes_per_s: Annotated[float | None, typer.Option(min=_MIN)] = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Set a tenant's quotas, for each gateway host; what is not said has no limit.

    hifi tenants put acme --events-per-s 1000
    """
    body = {
        "requests_per_s": requests_per_s,
        "events_per_s": events_per_s,
        "bytes_per_s": bytes_per_s,
    }
    print_json(ControlClient(gateway, api_key).call("PUT", "tenants", name, body=body))


@app.command()
def delete(
    name: Name, gateway: options.Gateway = options.GATEWAY_DEFAULT, api_key: options.ApiKey = None
) -> None:
    """Remove a tenant's quotas; its keys and streams stay."""
    ControlClient(gateway, api_key).call("DELETE", "tenants", name)
    talk.print(f"{harmless(name)} has no quotas any more.")
