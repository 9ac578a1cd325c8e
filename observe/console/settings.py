"""Lists what can be set for the console from outside: HIFI_OBSERVE_CONSOLE_* and nothing else."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.settings import ListenerSettings, Port


class ConsoleSettings(ListenerSettings):
    """Read once, in the __main__ of the process that serves the console."""

    model_config = SettingsConfigDict(env_prefix="HIFI_OBSERVE_CONSOLE_", frozen=True)

    port: Port = defaults.CONSOLE_PORT
    # Under which names, besides loopback, browsers may call it: "hifi.example,10.0.0.7".
    hosts: str = ""
    # Where the gateway answers, through which the console changes things.
    gateway: str = f"http://{defaults.HOST}:{defaults.GATEWAY_PORT}"
    # As the retrier has it, or times at which events are due would be shown wrong.
    time_scale: Annotated[float, Field(gt=0)] = 1.0
    # A proxy in front speaks TLS: the cookie is then sent over TLS only.
    https: bool = False

    @property
    def host_names(self) -> list[str]:
        return [name.strip() for name in self.hosts.split(",") if name.strip()]
