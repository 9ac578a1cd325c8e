"""`hifi destinations`: sets up, shows, pauses and removes the destinations of streams."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control import removal
from deploy.cli.control.streams import read_json
from deploy.cli.printing import Form, harmless, print_list, print_one, talk
from deploy.local.stack_settings import StackSettings
from shared import wording
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import UsageError

app = typer.Typer(name="destinations", no_args_is_help=True)

Stream = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The destination's name.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SETTING=VALUE", help="One setting; the value as JSON or text."),
]
Settings = Annotated[
    Path | None, typer.Option(help="A file with settings as a JSON object; - for standard input.")
]


@options.control_command(app, "list")
def list_destinations(
    *,
    stream: Annotated[str | None, typer.Argument(metavar="STREAM", help="Default: all.")] = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """List the destinations of a stream, or of all streams."""
    streams = client.call("GET", "streams")["streams"] if stream is None else [stream]
    rows = [
        each
        for name in streams
        for each in client.call("GET", "streams", name, "destinations")["destinations"]
    ]

    def named(shown: dict[str, Any]) -> str:
        return shown["name"] if stream else f"{shown['stream']}/{shown['name']}"

    heads = ("destination", "state", "format", "latency", "url")
    print_list(form, rows, heads, lambda each: [named(each), *_cells(each)], named)


@options.control_command(app, "get", alias="show")
def show(
    *,
    stream: Stream,
    name: Name,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    console: options.Console = options.CONSOLE_DEFAULT,
    api_key: options.ApiKey = None,
    form: Form | None,
) -> None:
    """Show a destination's settings as JSON, its state and its last answer.

    Secrets are not shown. The state comes from the console, and goes to standard error.
    """
    shown = options.control_client(gateway, api_key).call("GET", *_path(stream, name))
    print_one(form, shown, name=name)
    # Loaded after the settings are on the screen.
    from console.parts.last_answers import last_answers  # noqa: PLC0415
    from deploy.cli.overview import ConsoleClient, read_view, verdict_text  # noqa: PLC0415

    try:
        with ConsoleClient(console, api_key) as client:
            view = read_view(client, stream, name)
    except UsageError as error:
        talk.print(f"Its state is unknown: {harmless(str(error))}", style="dim")
        return
    if view is None:
        talk.print("Its state is unknown: the console does not know it yet.", style="dim")
        return
    talk.print(verdict_text(view.verdict.value), harmless(view.reason))
    for fact, text in last_answers(view):
        talk.print(f"{fact}: {harmless(text)}")
    if view.last_refusal and view.last_refusal.text:
        talk.print(harmless(view.last_refusal.text), style="dim")


@options.control_command(
    app, "put", create="Create a destination; refused if there is one with that name."
)
def put(
    *,
    stream: Stream,
    name: Name,
    url: Annotated[str | None, typer.Argument(help="The address to POST events to.")] = None,
    set_: Set = None,
    settings: Settings = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Create a destination or replace its settings: others return to defaults, secrets stay.

    hifi destinations put orders shop https://shop.example/in --set body_format=ndjson

    Give secrets in a file, so that no process list or shell history shows them:

    hifi destinations put orders shop --settings shop.json
    """
    body = read_settings(settings) | _parse(set_)
    if url is not None:
        body["url"] = url
    print_one(form, _put(client, _path(stream, name), body), name=name)


@options.control_command(app, "update", alias="change")
def change(
    *,
    stream: Stream,
    name: Name,
    set_: Set = None,
    settings: Settings = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Change some settings of a destination; all others stay.

    hifi destinations update orders shop --set parallel_max=8 --set rate_per_s=1000
    """
    if not set_ and settings is None:
        raise UsageError("Name the changes: --set SETTING=VALUE, or --settings FILE.")
    path = _path(stream, name)
    before = client.call("GET", *path)
    after = _put(client, path, before | read_settings(settings) | _parse(set_))
    print_one(form, after, name=name)
    if after["resumed_at_ms"] > before["resumed_at_ms"]:
        _say_tried(name)


@options.control_command(app)
def pause(stream: Stream, name: Name, client: ControlClient) -> None:
    """Pause a destination: its events wait in the stream for as long as the stream keeps them."""
    path = _path(stream, name)
    _put(client, path, client.call("GET", *path) | {"is_paused": True})
    talk.print(f"{harmless(name)} is paused.")


@options.control_command(app)
def resume(stream: Stream, name: Name, client: ControlClient) -> None:
    """Try a destination now: after a pause, a hold or a disabling, or before its retry is due."""
    client.call("POST", *_path(stream, name), "resume")
    _say_tried(name)


@options.control_command(app, settings=removal.observe)
def delete(
    *,
    stream: Stream,
    name: Name,
    yes: removal.Yes = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    settings: StackSettings,
    client: ControlClient,
) -> None:
    """Remove a destination: events that wait for a retry become dead letters."""
    path = _path(stream, name)
    client.call("GET", *path)
    removal.ask_first(stream, name, settings=settings, kafka=kafka, yes=yes)
    client.call("DELETE", *path)
    talk.print(f"{harmless(name)} is removed.")


def _say_tried(name: str) -> None:
    talk.print(f"{harmless(name)} is tried now. {wording.WHAT_FOLLOWS}")


def _path(stream: str, name: str) -> tuple[str, ...]:
    return "streams", stream, "destinations", name


def _put(client: ControlClient, path: tuple[str, ...], settings: dict[str, Any]) -> dict[str, Any]:
    answer = client.call("PUT", *path, body=settings)
    if "warning" in answer:
        talk.print(f"warning: {harmless(answer['warning'])}")
    return answer


def read_settings(settings: Path | None) -> dict[str, Any]:
    read = {} if settings is None else read_json(settings)
    if not isinstance(read, dict):
        raise UsageError(f"{settings} does not contain a JSON object of settings.")
    return read


def _parse(assignments: list[str] | None) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment}: write it as SETTING=VALUE.")
        try:
            parsed[name] = json.loads(value)
        except ValueError:
            # `--set url=https://...` needs no quotes within quotes.
            parsed[name] = value
    return parsed


def _cells(shown: dict[str, Any]) -> list[str]:
    state = "disabled" if shown["is_disabled"] else "paused" if shown["is_paused"] else "on"
    return [state, shown["body_format"], shown["latency"], harmless(shown["url"])]
