"""`hifi channels`: sets up, shows, tests and removes alert channels."""

from typing import Annotated, Any, Literal

import typer

from deploy.cli import options
from deploy.cli.control import removal
from deploy.cli.control.destinations import Settings, read_settings
from deploy.cli.printing import Form, harmless, out, print_data, print_list, print_one, talk
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import NoAnswerError

app = typer.Typer(name="channels", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name.")]


@options.control_command(
    app,
    "put",
    create="Create a channel; refused if there is one with that name.",
    update="Change some settings of a channel; all others stay.",
)
def put(
    *,
    name: Name,
    via: Annotated[
        Literal["webhook", "slack", "mail"] | None, typer.Option(help="Kind of channel.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Webhook URL.")] = None,
    recipient: Annotated[
        list[str] | None, typer.Option("--to", help="E-mail address; repeat for more.")
    ] = None,
    about: Annotated[
        list[str] | None,
        typer.Option(help="Verdict: failing, held, loss ...; repeat for more. Default: all."),
    ] = None,
    settings: Settings = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Create a channel or replace its settings: others return to defaults, secrets stay.

    hifi channels put ops --via mail --to ops@shop.example

    Give secrets in a file, so that no process list or shell history shows them: `secret_url` is
    the address of a Slack channel, `signing_secrets` sign a webhook.

    hifi channels put ops --via slack --settings slack.json
    """
    given = {"via": via, "url": url, "recipients": recipient or None, "about": about or None}
    body = read_settings(settings) | {
        each: value for each, value in given.items() if value is not None
    }
    print_one(form, client.call("PUT", "channels", name, body=body), name=name)


@options.control_command(app, "get", alias="show")
def show(name: Name, form: Form | None, client: ControlClient) -> None:
    """Show a channel's settings as JSON; for a secret, only whether it is set."""
    print_one(form, client.call("GET", "channels", name), name=name)


@options.control_command(app, "list")
def list_channels(*, form: Form | None, client: ControlClient) -> None:
    """List channels, their addresses and the verdicts they are notified about."""
    channels = client.call("GET", "channels")["channels"]
    print_list(form, channels, ("channel", "via", "to", "about"), _cells)


@options.control_command(app)
def test(*, name: Name, form: Form | None, client: ControlClient) -> None:
    """Send a test message, and print the channel's answer.

    Exit code 7 if the channel did not accept it.
    """
    answer = client.call("POST", "channels", name, "test")
    if form in {None, "table"}:
        out.print(f"{harmless(name)}: {harmless(answer['says'])}")
    else:
        print_data(form, answer)
    if not answer["is_taken"]:
        raise NoAnswerError(f"The channel {name} did not accept the message.")


@options.control_command(app)
def delete(*, name: Name, yes: removal.Yes = False, client: ControlClient) -> None:
    """Remove a channel: it gets no more alerts."""
    client.call("GET", "channels", name)
    if not yes:
        typer.confirm(f"Remove {harmless(name)}?", abort=True, err=True)
    client.call("DELETE", "channels", name)
    talk.print(f"{harmless(name)} is removed.")


def _cells(shown: dict[str, Any]) -> list[str]:
    to = ", ".join(shown["recipients"]) or shown["url"] or "an address that is kept sealed"
    return [shown["name"], shown["via"], harmless(to), ", ".join(shown["about"]) or "all"]
