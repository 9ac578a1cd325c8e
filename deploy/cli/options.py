"""Makes the options that several subcommands share: one name, one default, one variable each.

The defaults are those of `hifi up`, so that on one machine nothing need be given.
"""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from deploy.local.stack_settings import DATA, PORTS, StackSettings, option_of
from shared.runtime import defaults

P = ParamSpec("P")

_STACK = {setting.name: setting for setting in fields(StackSettings) if "help" in setting.metadata}
# What the embedded stack listens on and where it lies; how much each part gets is for `up` alone.
PLACES = ("folder", "brokers", *PORTS)
# Where the services say how they are. Kafka and the gateway have options of their own.
HEALTH_PORTS = tuple(name for name in PORTS if name not in {"kafka_port", "gateway_port"})

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
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="HIFI_API_KEY", help="For a gateway that asks for keys."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
Data = Annotated[Path, typer.Option(envvar="HIFI_UP_DATA", help=_STACK["folder"].metadata["help"])]


def stack_options(
    *names: str,
) -> Callable[[Callable[Concatenate[StackSettings, P], None]], Callable[P, None]]:
    """Give a command an option for each of these settings (all, if none is named).

    The command gets them as one value, its first argument.
    """
    chosen = names or tuple(_STACK)

    def decorate(command: Callable[Concatenate[StackSettings, P], None]) -> Callable[P, None]:
        @wraps(command)
        def call(*args: P.args, **options: P.kwargs) -> None:
            given: dict[str, Any] = {name: options.pop(name) for name in chosen}
            if "folder" in given:
                given["folder"] = given["folder"].absolute()
            command(StackSettings(**given), *args, **options)

        own = list(inspect.signature(command).parameters.values())[1:]
        parameters = [*(_parameter(_STACK[name]) for name in chosen), *own]
        # What typer makes its options from.
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        )
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        return call

    return decorate


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
        raise typer.BadParameter(f"{count}: 1 or 3 brokers can be run", param_hint="--brokers")
    return count
