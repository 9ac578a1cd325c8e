"""`hifi streams`: sets up, shows and removes the streams of a gateway."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.printing import harmless, out, print_json, talk
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import UsageError

app = typer.Typer(name="streams", no_args_is_help=True, help="Streams: put, list, show, delete.")

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]


@options.control_command(app, "list")
def list_streams(*, as_json: options.AsJson = False, client: ControlClient) -> None:
    """List the names of the streams there are."""
    names = client.call("GET", "streams")["streams"]
    if as_json:
        print_json(names)
        return
    for name in names:
        out.print(harmless(name))


@options.control_command(app)
def show(name: Name, client: ControlClient) -> None:
    """Show what a stream is set to, as JSON."""
    print_json(client.call("GET", "streams", name))


@options.control_command(app)
def put(
    *,
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
    client: ControlClient,
) -> None:
    """Make a stream, or set one anew: what is not said is as on its first day, but its partitions.

    hifi streams put orders --key-pointer /user/id --schema order.json
    """
    body: dict[str, Any] = {"key_pointer": key_pointer}
    if partitions is not None:
        body["partition_count"] = partitions
    if schema is not None:
        body["schema"] = read_json(schema)
    print_json(client.call("PUT", "streams", name, body=body))


@options.control_command(app)
def delete(name: Name, client: ControlClient) -> None:
    """Take a stream off the list. Its topic stays: what is in it may still be on its way."""
    client.call("DELETE", "streams", name)
    talk.print(f"{harmless(name)} is off the list; its Kafka topic stays as it is.")


def read_json(path: Path) -> Any:
    """What a file holds; - is standard input."""
    try:
        return json.loads(sys.stdin.read() if path == Path("-") else path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read as JSON ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}.") from error
