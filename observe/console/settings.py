"""Decides what can be set from outside for the console: HIFI_OBSERVE_CONSOLE_* and nothing else."""

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.runtime.setup_error import SetupError


class ConsoleSettings(BaseSettings):
    """Read once, in the __main__ of the process that serves the console."""

    model_config = SettingsConfigDict(env_prefix="HIFI_OBSERVE_CONSOLE_", frozen=True)

    # Loopback until somebody decides otherwise, as the gateway.
    host: str = "127.0.0.1"
    # 0 takes any free port.
    port: Annotated[int, Field(ge=0, le=65_535)] = 8088
    # Under which names, besides loopback, browsers may call it: "hifi.example,10.0.0.7".
    hosts: str = ""
    # `keys` asks for sign-in. By default it is off on loopback, where only this machine can look,
    # and on everywhere else.
    auth: Literal["off", "keys"] | None = None
    # As the retrier has it, or times at which events are due would be shown wrong.
    time_scale: Annotated[float, Field(gt=0)] = 1.0
    # A proxy in front speaks TLS: the cookie is then sent over TLS only.
    https: bool = False

    @property
    def asks_for_keys(self) -> bool:
        return self.auth == "keys" or (self.auth is None and not _is_loopback(self.host))

    @property
    def host_names(self) -> list[str]:
        return [name.strip() for name in self.hosts.split(",") if name.strip()]


def read_console_settings() -> ConsoleSettings:
    """The settings of the environment, or one sentence on the first that is wrong."""
    try:
        return ConsoleSettings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "HIFI_OBSERVE_CONSOLE_" + "_".join(str(part) for part in first["loc"]).upper()
        raise SetupError(f"{name} is {first['input']!r}: {first['msg']}.") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
