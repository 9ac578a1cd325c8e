"""`hifi streams`: sets up, shows and removes the streams of a gateway."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control import removal
from deploy.cli.printing import (
    Form,
    harmless,
    out,
    print_list,
    print_one,
    print_table,
    talk,
    when,
)
from deploy.local.stack_settings import StackSettings
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import UsageError

app = typer.Typer(name="streams", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]


@options.control_command(app, "list")
def list_streams(*, form: Form | None, client: ControlClient) -> None:
    """List the names of all streams; on standard error, those of removed streams."""
    answer = client.call("GET", "streams")
    print_list(form or "name", answer["streams"], ["stream"], lambda name: [name], str)
    if form is not None:
        return
    for gone in answer["removed"]:
        talk.print(f"{harmless(gone['name'])} was removed {when(gone['removed_at_ms'])}")


@options.control_command(app, "get", alias="show")
def show(name: Name, form: Form | None, client: ControlClient) -> None:
    """Show a stream's settings as JSON."""
    print_one(form, client.call("GET", "streams", name), name=name)


@options.control_command(app)
def spread(name: Name, *, form: Form | None, client: ControlClient) -> None:
    """Show the last hour's events by Kafka partition, and the most frequent keys."""
    answer = client.call("GET", "streams", name, "spread")
    if form not in {None, "table"}:
        print_one(form, answer, name=name)
        return
    counts, hot = answer["partitions"], answer["hot"]
    total = sum(counts) or 1
    rows = [
        [str(number), f"{count:,}", f"{count / total:.0%}", "hot" if number == hot else ""]
        for number, count in enumerate(counts)
    ]
    print_table(("partition", "events", "share", ""), rows)
    for each in answer["keys"]:
        out.print(harmless(f"{each['part']:.0%} of its newest events have the key {each['key']!r}"))
    if hot is not None:
        talk.print(f"Kafka partition {hot} got more than twice its share: docs/partitions.md")


@options.control_command(
    app,
    "put",
    create="Create a stream; refused if there is one with that name.",
    update="Change some settings of a stream; all others stay.",
)
def put(
    *,
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(help="Kafka partitions; the number can only grow.", min=1)
    ] = None,
    key_pointer: Annotated[
        str | None, typer.Option(help="Pointer to an event's ordering key, such as /user/id.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="A file with the JSON Schema that each event must fit.")
    ] = None,
    shards: Annotated[
        str,
        typer.Option(
            help="Names of shards, such as eu-1,eu-2: each has a Kafka partition, in this order.",
            metavar="NAME,...",
        ),
    ] = "",
    shard_pointer: Annotated[
        str, typer.Option(help="Pointer to the shard in an event, such as /tenant.")
    ] = "",
    form: Form | None,
    client: ControlClient,
) -> None:
    """Create a stream or replace its settings: others return to defaults, partitions stay.

    hifi streams put orders --key-pointer /user/id --schema order.json

    hifi streams put rows --shards eu-1,eu-2,us-1 --shard-pointer /tenant
    """
    body: dict[str, Any] = {}
    if key_pointer is not None:
        body["key_pointer"] = key_pointer
    if partitions is not None:
        body["partition_count"] = partitions
    if schema is not None:
        body["schema"] = read_json(schema)
    if bool(shards) != bool(shard_pointer):
        raise UsageError("Give both --shards, their names, and --shard-pointer, where they are.")
    if shards:
        body["partitioning"] = {"pointer": shard_pointer, "shards": shards.split(",")}
    print_one(form, client.call("PUT", "streams", name, body=body), name=name)


@options.control_command(app, settings=removal.observe)
def delete(
    *,
    name: Name,
    yes: removal.Yes = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    settings: StackSettings,
    client: ControlClient,
) -> None:
    """Remove a stream from the list. You keep its name, and can still read its stored events."""
    client.call("GET", "streams", name)
    removal.ask_first(name, None, settings=settings, kafka=kafka, yes=yes)
    client.call("DELETE", "streams", name)
    talk.print(f"{harmless(name)} is removed; its dead letters and receipts can be read as before.")


def read_json(path: Path) -> Any:
    """Read the JSON of a file; - is standard input."""
    try:
        return json.loads(sys.stdin.read() if path == Path("-") else path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read as JSON ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}.") from error
