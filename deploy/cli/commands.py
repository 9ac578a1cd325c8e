"""Gathers the subcommands of `hifi`, one file each."""

import logging

import typer

from deploy.cli import doctor, gateway, status, top, up
from deploy.cli.control import dead, destinations, keys, secrets, streams, tenants
from deploy.cli.events import receipt, reconcile, replay, send, tail, verify
from shared.runtime.logs import configure_logs

app = typer.Typer(
    name="hifi",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
commands = (
    up.up,
    doctor.doctor,
    status.status,
    top.top,
    send.send,
    tail.tail,
    receipt.receipt,
    gateway.gateway,
    verify.verify,
    reconcile.reconcile,
)
for command in commands:
    app.command()(command)
app.command("replay")(replay.replay_)
for name, group in (
    ("keys", keys.app),
    ("streams", streams.app),
    ("destinations", destinations.app),
    ("secrets", secrets.app),
    ("tenants", tenants.app),
    ("dead", dead.app),
):
    app.add_typer(group, name=name)


@app.callback()
def _hifi() -> None:
    """High-fidelity data streams: HTTP in, Kafka, Spark, HTTP out, nothing lost."""
    configure_logs(service="hifi", level="warning")
    # What the client has to say of a broker that is away, we say in one sentence.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
