"""Reads a process's settings from its environment; a wrong variable is one sentence and exit 2.

What else is wrong outside the code is one sentence and exit 1.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.event.topic_safety import Copies
from shared.runtime import defaults
from shared.runtime.secret_box import SecretBox
from shared.runtime.setup_error import OperatorError, SetupError

S = TypeVar("S", bound=BaseSettings)

Port = Annotated[int, Field(ge=0, le=65_535)]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    BeforeValidator(lambda level: level.lower() if isinstance(level, str) else level),
]
# What a shell reports of a command that was called wrongly.
_WRONG_USE = 2


class ServiceSettings(BaseSettings):
    """What every service is told; a subclass gives the prefix of its variables."""

    model_config = SettingsConfigDict(frozen=True)

    bootstrap_servers: str = f"{defaults.HOST}:{defaults.KAFKA_PORT}"
    log_level: LogLevel = "info"


class SparkServiceSettings(ServiceSettings):
    """The same for services that run Spark, and show their metrics on a port."""

    # What the service owns: on durable storage, and one owner only.
    folder: Path
    # None: the cache that every Hifi command shares.
    jars_cache: Path | None = None
    metrics_host: str = defaults.HOST
    metrics_port: Port


class SecretSettings(BaseSettings):
    """HIFI_SECRET_KEYS, the same for every process of one Hifi that seals or opens secrets."""

    model_config = SettingsConfigDict(frozen=True, hide_input_in_errors=True)

    secret_keys: Annotated[str, AfterValidator(lambda keys: SecretBox.of(keys) and keys)] = Field(
        default="", repr=False, validation_alias="HIFI_SECRET_KEYS"
    )

    @property
    def secret_box(self) -> SecretBox:
        return SecretBox.of(self.secret_keys)


class CopiesSettings(BaseSettings):
    """HIFI_KAFKA_REPLICAS and HIFI_KAFKA_IN_SYNC_MIN, for every process that makes topics."""

    model_config = SettingsConfigDict(frozen=True)

    kafka_replicas: Annotated[int, Field(ge=1, le=100)] = Field(
        default=Copies().replicas, validation_alias="HIFI_KAFKA_REPLICAS"
    )
    kafka_in_sync_min: Annotated[int, Field(ge=1, le=100)] = Field(
        default=Copies().in_sync_min, validation_alias="HIFI_KAFKA_IN_SYNC_MIN"
    )

    @property
    def copies(self) -> Copies:
        if self.kafka_in_sync_min > self.kafka_replicas:
            raise SetupError(
                f"HIFI_KAFKA_IN_SYNC_MIN is {self.kafka_in_sync_min} of {self.kafka_replicas}"
                " copies (HIFI_KAFKA_REPLICAS): nothing could ever be stored."
            )
        return Copies(self.kafka_replicas, self.kafka_in_sync_min)


class ListenerSettings(BaseSettings):
    """Where people and programs call in, and whether they must say who they are."""

    model_config = SettingsConfigDict(frozen=True)

    # Loopback until somebody decides otherwise: nothing is opened to a network by accident.
    host: str = defaults.HOST
    # 0 takes any free port.
    port: Port
    # `keys` asks every caller who they are; `off` lets everybody do everything. The address does
    # not decide: behind a proxy on the same machine, loopback is open to the world.
    auth: Literal["off", "keys"] = "keys"
    # Names under which browsers may call it, besides addresses and names without a dot:
    # "hifi.example,gateway.internal". With keys the gateway answers to any name.
    hosts: str = ""

    @property
    def asks_for_keys(self) -> bool:
        return self.auth == "keys"

    @property
    def host_names(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.hosts.split(",") if name.strip())


def read_settings(kind: type[S], *, program: str) -> S:
    """The settings that the environment gives to `program`, which ends when one of them is wrong.

    Called once, where a process starts.
    """
    try:
        return kind()
    except ValidationError as error:
        first = error.errors()[0]
        name = str(kind.model_config.get("env_prefix", "")) + "_".join(map(str, first["loc"]))
        problem = f"{name.upper()} is {first['input']!r}: {first['msg']}."
    except SetupError as error:
        problem = str(error)
    sys.stderr.write(f"{program}: {problem}\n")
    sys.exit(_WRONG_USE)


@contextmanager
def operator_errors(program: str) -> Iterator[None]:
    """End the process with one sentence for the person who runs it."""
    try:
        yield
    except OperatorError as error:
        sys.exit(f"{program}: {error}")
