"""Makes the options that several subcommands share: one name, one default, one variable each.

The defaults are those of `hifi up`, so on one machine no option is needed.
"""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli.printing import Form
from deploy.local.stack_settings import DATA, PORTS, StackSettings, option_of
from shared.runtime import defaults
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.http_client import HttpAnswer
from shared.runtime.setup_error import OperatorError

Command = Callable[..., None]
Maker = Callable[..., Any]

_STACK = {setting.name: setting for setting in fields(StackSettings) if "help" in setting.metadata}
# The ports and places of the embedded stack; only `up` also sets the size of each part.
PLACES = ("folder", "brokers", *PORTS)
# Ports where the services report their health. Kafka and the gateway have separate options.
HEALTH_PORTS = tuple(name for name in PORTS if name not in {"kafka_port", "gateway_port"})

# A span of time as people write it: 90s, 15m, 36h, 7d.
SPAN_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

KAFKA_DEFAULT = f"{defaults.HOST}:{defaults.KAFKA_PORT}"
GATEWAY_DEFAULT = f"http://{defaults.HOST}:{defaults.GATEWAY_PORT}"
CONSOLE_DEFAULT = f"http://{defaults.HOST}:{defaults.CONSOLE_PORT}"
DATA_DEFAULT = DATA

Kafka = Annotated[
    str, typer.Option("--kafka", envvar="HIFI_KAFKA", metavar="HOST:PORT", help="Kafka's address.")
]
Gateway = Annotated[
    str, typer.Option("--gateway", envvar="HIFI_GATEWAY", metavar="URL", help="The gateway.")
]
Console = Annotated[
    str, typer.Option("--console", envvar="HIFI_CONSOLE", metavar="URL", help="The console.")
]
# Options of commands that send or write a span of a stream again.
StoredBefore = Annotated[
    str | None, typer.Option("--to", help="Stored before this time; same form as --from.")
]
Rate = Annotated[float | None, typer.Option("--rate", help="Maximum events per second.", min=0.001)]
RunId = Annotated[
    str | None, typer.Option("--id", help="A name for this run; the same name resumes it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the events.")]


def _key_of_the_place(ctx: typer.Context, key: str | None) -> str | None:
    """Return the key; None if only the key comes from a profile, and the address does not."""
    explicit = {"COMMANDLINE", "ENVIRONMENT"}
    if _source(ctx, "api_key") == "DEFAULT_MAP" and (
        explicit & {_source(ctx, "gateway"), _source(ctx, "console")}
    ):
        return None
    return key


def is_said(ctx: typer.Context, parameter: str) -> bool:
    """Return whether the value is given: as an option, in a variable, or in a profile."""
    return _source(ctx, parameter) not in {"", "DEFAULT"}


def _source(ctx: typer.Context, parameter: str) -> str:
    source = ctx.get_parameter_source(parameter)
    return "" if source is None else source.name


ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="HIFI_API_KEY",
        callback=_key_of_the_place,
        help="Your API key, if the gateway requires one.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Data = Annotated[Path, typer.Option(envvar="HIFI_UP_DATA", help=_STACK["folder"].metadata["help"])]


def made_of(**makers: Maker) -> Callable[[Command], Command]:
    """Let a command take parameters that are each built from several options.

    `makers`: for each such parameter, the function that builds its value. That function's
    parameters become the command's options.
    """
    takes = {name: inspect.signature(make).parameters for name, make in makers.items()}

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(**given: Any) -> None:
            made = {
                name: make(**{option: given.pop(option) for option in takes[name]})
                for name, make in makers.items()
            }
            command(**made, **given)

        own = inspect.signature(command).parameters
        listed = chain.from_iterable(
            takes[name].values() if name in takes else (own[name],) for name in own
        )
        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in listed]
        # Typer makes its options from this.
        call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        return call

    return decorate


def control_command(
    app: typer.Typer,
    name: str | None = None,
    *,
    alias: str | None = None,
    create: str | None = None,
    update: str | None = None,
    **makers: Maker,
) -> Callable[[Command], Command]:
    """Add a command that asks the gateway: its `client` is made of --gateway and --api-key.

    A command with a `form` gets --output and --json. `alias`: a second name, which no list shows.
    `create`, `update`: descriptions of two variants of a command that PUTs. `create` succeeds only
    if there is no such object yet; `update` changes only the given settings of an existing one.
    """

    def add(command: Command) -> Command:
        offered: dict[str, Maker] = {"client": control_client, "form": form, **makers}
        takes = inspect.signature(command).parameters
        wanted = {parameter: make for parameter, make in offered.items() if parameter in takes}

        def made(**others: Maker) -> Command:
            return made_of(**wanted | others)(command)

        if create is not None:
            app.command("create", help=create)(made(client=_creating_client))
        added = app.command(name)(made())
        if alias is not None:
            app.command(alias, hidden=True)(made())
        if update is not None:
            app.command("update", help=update)(made(client=_updating_client))
        return added

    return add


def stack_settings(*names: str) -> Maker:
    """Return a maker of StackSettings, with an option for each of `names`; none means all."""

    def make(**given: Any) -> StackSettings:
        if "folder" in given:
            given["folder"] = given["folder"].absolute()
        return StackSettings(**given)

    offered = [_parameter(_STACK[name]) for name in names or _STACK]
    make.__signature__ = inspect.Signature(offered)  # type: ignore[attr-defined]
    return make


def form(
    output: Annotated[
        Form | None,
        typer.Option("--output", "-o", help="Output format: table, JSON or names only."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As --output json.")] = False,
) -> Form | None:
    """Return the requested form, if any."""
    if as_json and output not in {None, "json"}:
        raise typer.BadParameter(f"{output} contradicts --json", param_hint="--output")
    return "json" if as_json else output


def control_client(gateway: Gateway = GATEWAY_DEFAULT, api_key: ApiKey = None) -> ControlClient:
    return ControlClient(gateway, api_key)


class _CreatingClient(ControlClient):
    """A client whose PUT makes a new object, or fails if it exists."""

    def send(self, method: str, *path: str, **sent: Any) -> HttpAnswer:
        if method == "PUT":
            self.expect_none(*path)
        try:
            return super().send(method, *path, **sent)
        except RefusedError as error:
            if error.status != HTTPStatus.PRECONDITION_FAILED:
                raise
            raise OperatorError(f"{path[-1]!r} exists already: change it with `put`.") from error


class _UpdatingClient(ControlClient):
    """A client whose PUT keeps the settings that it does not name."""

    def send(self, method: str, *path: str, **sent: Any) -> HttpAnswer:
        if method == "PUT":
            sent["body"] = self.call("GET", *path) | (sent.get("body") or {})
        return super().send(method, *path, **sent)


def _creating_client(gateway: Gateway = GATEWAY_DEFAULT, api_key: ApiKey = None) -> ControlClient:
    return _CreatingClient(gateway, api_key)


def _updating_client(gateway: Gateway = GATEWAY_DEFAULT, api_key: ApiKey = None) -> ControlClient:
    return _UpdatingClient(gateway, api_key)


def _parameter(setting: Field[Any]) -> inspect.Parameter:
    is_brokers = setting.name == "brokers"
    option = option_of(setting.name)
    offered = typer.Option(
        option,
        envvar=f"HIFI_UP_{option.removeprefix('--').replace('-', '_').upper()}",
        callback=_one_or_three if is_brokers else None,
        **setting.metadata,
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=setting.default,
        annotation=Annotated[int if is_brokers else setting.type, offered],
    )


def _one_or_three(count: int) -> int:
    if count not in {1, 3}:
        raise typer.BadParameter(f"{count}: only 1 or 3 brokers can run", param_hint="--brokers")
    return count
