"""Decides what can be set from outside for the console: HIFI_OBSERVE_CONSOLE_* and nothing else."""

import ipaddress
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


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
    # A proxy in front speaks TLS: the cookie is then sent over TLS only.
    https: bool = False

    @property
    def asks_for_keys(self) -> bool:
        return self.auth == "keys" or (self.auth is None and not _is_loopback(self.host))

    @property
    def host_names(self) -> list[str]:
        return [name.strip() for name in self.hosts.split(",") if name.strip()]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
