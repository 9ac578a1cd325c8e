"""`hifi streams`: sets up, shows and removes the streams of a gateway."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control.control_client import ControlClient
from deploy.cli.printing import harmless, out, print_json, talk
from shared.runtime.setup_error import UsageError

app = typer.Typer(no_args_is_help=True, help="Streams: put, list, show, delete.")

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]


@app.command("list")
def list_streams(
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List the names of the streams there are."""
    names = ControlClient(gateway, api_key).call("GET", "streams")["streams"]
    if as_json:
        print_json(names)
        return
    for name in names:
        out.print(harmless(name))


@app.command()
def show(
    name: Name, gateway: options.Gateway = options.GATEWAY_DEFAULT, api_key: options.ApiKey = None
) -> None:
    """Show what a stream is set to, as JSON."""
    print_json(ControlClient(gateway, api_key).call("GET", "streams", name))


@app.command()
def put(  # noqa: PLR0917 - typer makes an option of each
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(help="Kafka partitions; they can only become more.", min=1)
    ] = None,
    key_pointer: Annotated[
        str, typer.Option(help="Where an event holds its ordering key, such as /user/id.")
    ] = "",
    schema: Annotated[
        Path | None, typer.Option(help="A file with the JSON Schema that each event must fit.")
    ] = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Make a stream, or set one anew: what is not said is as on its first day, but its partitions.

    hifi streams put orders --key-pointer /user/id --schema order.json
    """
    body: dict[str, Any] = {"key_pointer": key_pointer}
    if partitions is not None:
        body["partition_count"] = partitions
    if schema is not None:
        body["schema"] = _read(schema)
    print_json(ControlClient(gateway, api_key).call("PUT", "streams", name, body=body))


@app.command()
def delete(
    name: Name, gateway: options.Gateway = options.GATEWAY_DEFAULT, api_key: options.ApiKey = None
) -> None:
    """Take a stream off the list. Its topic stays: what is in it may still be on its way."""
    ControlClient(gateway, api_key).call("DELETE", "streams", name)
    talk.print(f"{harmless(name)} is off the list; its Kafka topic stays as it is.")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}.") from error
