"""`hifi archive`: archives a stream in a store, and verifies that the archive is complete."""

from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.archive.verify import verify
from deploy.cli.printing import out, talk
from deploy.local.secret_keys import VARIABLE, secret_keys
from deploy.local.stores import STORE
from shared.config.outside.store import store_owner
from shared.runtime.control_client import ControlClient
from shared.runtime.secret_box import SecretBox

app = typer.Typer(name="archive", no_args_is_help=True)
app.command()(verify)


@app.command()
def seal(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store's name.")],
    data: options.Data = options.DATA_DEFAULT,
    keys: Annotated[
        str | None,
        typer.Option("--secret-keys", envvar=VARIABLE, help="Sealing keys; default: in --data."),
    ] = None,
) -> None:
    """Seal a store's secret key for the file of stores: it is asked for, and never shown.

    hifi archive seal backup
    """
    secret = typer.prompt("Secret key", hide_input=True, err=True)
    box = SecretBox.of(secret_keys(data, {VARIABLE: keys} if keys else {}))
    out.print(box.seal(secret, owner=store_owner(store)), soft_wrap=True)


@options.control_command(app)
def put(
    *,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream.")],
    store: Annotated[
        str, typer.Option(help="The store, as named in the operator's file of stores.")
    ] = STORE,
    name: Annotated[
        str | None, typer.Option(help="The archive's pipeline; default: STREAM-archive.")
    ] = None,
    client: ControlClient,
) -> None:
    """Archive all events of a stream in a store, from the oldest that Kafka has.

    An archive is a pipeline: `hifi pipelines get` shows its state; `hifi pipelines delete` stops
    archiving, and the archived events stay.

    hifi archive put orders
    """
    called = name or f"{stream}-archive"
    document = {"from": {"stream": stream}, "to": [{"archive": store}]}
    client.call("PUT", "pipelines", called, body=document)
    state = client.call("GET", "pipelines", called, query={"wait": "5"})["state"]
    talk.print(f"{called} is {state['standing']}. {state['why']}".strip())
