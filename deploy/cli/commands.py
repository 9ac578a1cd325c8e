"""Gathers the subcommands of `hifi`, one file each."""

import logging
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from deploy.cli import doctor, gateway, status, top, topics, up
from deploy.cli.archive import archives, restore
from deploy.cli.control import (
    dead,
    destinations,
    keys,
    pipelines,
    secrets,
    streams,
    tables,
    tenants,
)
from deploy.cli.events import receipt, reconcile, replay, send, tail, verify
from deploy.cli.options import control_command
from deploy.cli.printing import out, talk
from deploy.cli.scale import plan, rate, simulate, size, soak
from shared.runtime.logs import configure_logs


class HifiGroup(TyperGroup):
    """Says what is wrong with a variable in one sentence, as the services do."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            option, context = error.param, error.ctx
            if option is None or context is None:
                raise
            source = context.get_parameter_source(option.name)
            if source is None or source.name != "ENVIRONMENT":
                raise
            talk.print(f"hifi: {option.envvar} is wrong: {error.message}", style="red")
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    name="hifi",
    cls=HifiGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
commands = (
    up.up,
    doctor.doctor,
    topics.topics,
    status.status,
    top.top,
    send.send,
    tail.tail,
    gateway.gateway,
    verify.verify,
    reconcile.reconcile,
    rate.rate,
    soak.soak,
    plan.plan,
    size.size,
)
for command in commands:
    app.command()(command)
control_command(app)(receipt.receipt)
app.command("replay")(replay.replay_)
app.command("restore")(restore.restore_)
app.command("simulate")(simulate.simulate_)
for group in (keys, streams, destinations, pipelines, tables, archives, secrets, tenants, dead):
    app.add_typer(group.app)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        out.print(f"hifi {version('hifi-streams')}")
        raise typer.Exit


@app.callback()
def _hifi(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """High-fidelity data streams: HTTP in, Kafka, Spark, HTTP out, nothing lost."""
    configure_logs(service="hifi", level="warning")
    # What the client has to say of a broker that is away, we say in one sentence.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
