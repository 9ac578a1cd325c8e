"""Makes commands that ask the gateway: each gets its client, and adds --gateway and --api-key."""

import inspect
from collections.abc import Callable
from itertools import chain
from typing import Any

import typer

from deploy.cli import options
from shared.runtime.control_client import ControlClient

Command = Callable[..., None]


def control_command(
    app: typer.Typer, name: str | None = None, **makers: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Add a command whose parameter `client` is made of options of its own, and so are others.

    `makers`: by the name of a parameter, what makes its value; the options are what that takes.
    """
    makers["client"] = _client

    def add(command: Command) -> Command:
        takes = {each: inspect.signature(make).parameters for each, make in makers.items()}
        signature = inspect.signature(command)
        own = [each for each in signature.parameters.values() if each.name not in makers]

        def run(**given: Any) -> None:
            made = {
                parameter: make(**{option: given.pop(option) for option in takes[parameter]})
                for parameter, make in makers.items()
            }
            command(**made, **given)

        listed = chain(own, *(parameters.values() for parameters in takes.values()))
        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in listed]
        run.__signature__ = signature.replace(parameters=keywords)  # type: ignore[attr-defined]  # read by inspect
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        app.command(name)(run)
        return command

    return add


def _client(
    gateway: options.Gateway = options.GATEWAY_DEFAULT, api_key: options.ApiKey = None
) -> ControlClient:
    return ControlClient(gateway, api_key)
