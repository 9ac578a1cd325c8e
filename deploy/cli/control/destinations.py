"""`hifi destinations`: sets up, shows, pauses and removes where a stream's events go."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control.control_client import ControlClient
from deploy.cli.printing import harmless, print_json, print_table, talk
from shared.runtime.setup_error import UsageError

app = typer.Typer(
    no_args_is_help=True, help="Destinations: put, change, list, show, pause, resume, delete."
)

Stream = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The destination's name.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SETTING=VALUE", help="One setting; the value as JSON or text."),
]
Settings = Annotated[
    Path | None, typer.Option(help="A file with settings as a JSON object; - for standard input.")
]


@app.command("list")
def list_destinations(
    stream: Stream,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List a stream's destinations."""
    answer = ControlClient(gateway, api_key).call("GET", "streams", stream, "destinations")
    if as_json:
        print_json(answer["destinations"])
        return
    heads = ("destination", "state", "format", "latency", "url")
    print_table(heads, [_cells(one) for one in answer["destinations"]])


@app.command()
def show(
    stream: Stream,
    name: Name,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Show what a destination is set to, as JSON; of a secret only that there is one."""
    print_json(_At(gateway, api_key, stream, name).get())


@app.command()
def put(  # noqa: PLR0917 - typer makes an option of each
    stream: Stream,
    name: Name,
    url: Annotated[str | None, typer.Argument(help="Where to POST the events.")] = None,
    set_: Set = None,
    settings: Settings = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Make a destination, or set one anew: what is not said is as on its first day, but secrets.

    hifi destinations put orders shop https://shop.example/in --set body_format=ndjson

    Secrets come from a file, so that they are in no list of processes and no history:

    hifi destinations put orders shop --settings shop.json
    """
    body = _read(settings) | _parse(set_)
    if url is not None:
        body["url"] = url
    print_json(_At(gateway, api_key, stream, name).put(body))


@app.command()
def change(  # noqa: PLR0917 - typer makes an option of each
    stream: Stream,
    name: Name,
    set_: Set = None,
    settings: Settings = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Change some settings of a destination; all others stay.

    hifi destinations change orders shop --set parallel_max=8 --set rate_per_s=1000
    """
    at = _At(gateway, api_key, stream, name)
    print_json(at.put(at.get() | _read(settings) | _parse(set_)))


@app.command()
def pause(
    stream: Stream,
    name: Name,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Send nothing more for now: events wait in the stream, as long as the stream keeps them."""
    at = _At(gateway, api_key, stream, name)
    at.put(at.get() | {"is_paused": True})
    talk.print(f"{harmless(name)} is paused.")


@app.command()
def resume(
    stream: Stream,
    name: Name,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Go on after a pause, a hold or a disabling."""
    _At(gateway, api_key, stream, name).resume()
    talk.print(f"{harmless(name)} goes on.")


@app.command()
def delete(
    stream: Stream,
    name: Name,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Remove a destination: what waits to be tried again becomes dead letters."""
    _At(gateway, api_key, stream, name).delete()
    talk.print(f"{harmless(name)} is removed.")


class _At:
    """One destination at one gateway."""

    def __init__(self, gateway: str, api_key: str | None, stream: str, name: str) -> None:
        self._client = ControlClient(gateway, api_key)
        self._path = "streams", stream, "destinations", name

    def get(self) -> dict[str, Any]:
        return self._client.call("GET", *self._path)

    def put(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.call("PUT", *self._path, body=body)
        if "warning" in answer:
            talk.print(f"warning: {harmless(answer['warning'])}")
        return answer

    def resume(self) -> None:
        self._client.call("POST", *self._path, "resume")

    def delete(self) -> None:
        self._client.call("DELETE", *self._path)


def _read(settings: Path | None) -> dict[str, Any]:
    if settings is None:
        return {}
    try:
        text = sys.stdin.read() if str(settings) == "-" else settings.read_text()
        read = json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"{settings} cannot be read as JSON ({error}).") from error
    if not isinstance(read, dict):
        raise UsageError(f"{settings} does not hold a JSON object of settings.")
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


def _cells(one: dict[str, Any]) -> list[str]:
    state = "disabled" if one["is_disabled"] else "paused" if one["is_paused"] else "on"
    return [one["name"], state, one["body_format"], one["latency"], harmless(one["url"])]
