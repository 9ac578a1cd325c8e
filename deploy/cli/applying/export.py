"""`hifi export`: writes a gateway's objects in the form that `hifi apply` reads."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.applying.whole_export import lines_of
from deploy.cli.printing import Form, out, print_data, reader_may_leave, yaml_text
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.config.outside.channel import Channel
from shared.config.table import Table
from shared.runtime.control_client import ControlClient
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.setup_error import UsageError

# The key decides the tenant. The other values are set by Hifi, or temporarily by people.
_LEFT_OUT = frozenset(
    {"tenant", "generation", "resumed_at_ms", "state", "is_paused", "is_disabled"}
)
# Defaults are left out, which makes files shorter. The number of partitions is always there,
# because it can only grow.
_STREAM, _TABLE, _DESTINATION, _CHANNEL = (
    kind.known_fields() | {"url": None}
    for kind in (
        *(Stream("x"), Table("x"), Destination("x", "x", "https://x.example")),
        Channel("x", "webhook", url="https://x.example"),
    )
)
_ALWAYS = frozenset({"via", "name", "stream", "partition_count"})


@options.made_of(client=options.control_client, form=options.form)
def export(
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STREAM",
            help="Only these streams, with their destinations and the pipelines that read them.",
        ),
    ] = None,
    *,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything",
            help="For `hifi import`: all tenants' settings, API keys and secrets, from Kafka.",
        ),
    ] = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Write streams, tables, destinations, pipelines and channels, for `hifi apply`.

    Each secret is replaced by a placeholder that only this gateway can turn back. Write
    `{env: VARIABLE}` instead, and `hifi apply` takes the secret from the environment.

        hifi export > hifi.yaml

        hifi export --everything --kafka broker-1:9092 > hifi.ndjson
    """
    if everything:
        if streams or form:
            raise UsageError("--everything takes no names of streams, and has one format.")
        configuration = asyncio.run(read_config(kafka))
        with reader_may_leave():
            for line in lines_of(configuration):
                out.out(line)
        return
    objects = _of_streams(client, streams) if streams else _all(client)
    with reader_may_leave():
        if form == "name":
            for each in objects:
                out.print(
                    "/".join(each[part] for part in ("kind", "stream", "name") if part in each)
                )
        elif form == "json":
            print_data(form, [*objects])
        else:
            for each in objects:
                out.out("---\n" + yaml_text(each).rstrip("\n"))


def _all(client: ControlClient) -> Iterator[dict[str, Any]]:
    for line in client.call("GET", "tables")["tables"]:
        yield _of("table", client.call("GET", "tables", line["name"]), _TABLE)
    yield from _of_streams(client, client.call("GET", "streams")["streams"])
    for shown in client.call("GET", "channels")["channels"]:
        yield _of("channel", shown, _CHANNEL)


def _of_streams(client: ControlClient, streams: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in streams:
        yield _of("stream", client.call("GET", "streams", name), _STREAM)
    for name in streams:
        answer = client.call("GET", "streams", name, "destinations")
        for shown in answer["destinations"]:
            yield _of("destination", shown, _DESTINATION)
    for line in client.call("GET", "pipelines")["pipelines"]:
        if line["reads"] in streams:
            yield _of("pipeline", client.call("GET", "pipelines", line["name"]), {})


def _of(kind: str, shown: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        name: value
        for name, value in shown.items()
        if name not in _LEFT_OUT and (name in _ALWAYS or usual.get(name) != value)
    }
    return {"kind": kind} | fields
