"""Reads a process's settings from its environment.

A wrong variable ends the process with one sentence and exit code 2, any other problem outside the
code with one sentence and exit code 1.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.event.topic_safety import Copies
from shared.event.topics import OUTCOME_PARTITIONS, RETRY_PARTITIONS, SEGMENT_MS, PartitionCounts
from shared.runtime import defaults
from shared.runtime.kafka.settings import kafka_access
from shared.runtime.secret_box import SecretBox
from shared.runtime.setup_error import OperatorError, SetupError, wrong_variable
from shared.runtime.tracing.settings import read_tracing

S = TypeVar("S", bound=BaseSettings)

Port = Annotated[int, Field(ge=0, le=65_535)]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    BeforeValidator(lambda level: level.lower() if isinstance(level, str) else level),
]
# The shells' exit code for wrong usage of a command.
_WRONG_USE = 2
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


class ServiceSettings(BaseSettings):
    """The settings of every service; a subclass sets the prefix of its variables."""

    model_config = SettingsConfigDict(frozen=True)

    bootstrap_servers: str = f"{defaults.HOST}:{defaults.KAFKA_PORT}"
    log_level: LogLevel = "info"

    @model_validator(mode="after")
    def _has_what_all_share(self) -> Self:
        # The code that uses these reads them again. Reading them here reports mistakes at once.
        kafka_access()
        read_tracing()
        return self


class SparkServiceSettings(ServiceSettings):
    """The settings of services with Spark and a port for metrics."""

    # The service's own folder, on durable storage.
    folder: Path
    # None means the cache that all Hifi commands share.
    jars_cache: Path | None = None
    metrics_host: str = defaults.HOST
    metrics_port: Port


class SecretSettings(BaseSettings):
    """HIFI_SECRET_KEYS, which all processes of one Hifi that seal or open secrets share."""

    model_config = SettingsConfigDict(frozen=True, hide_input_in_errors=True)

    secret_keys: Annotated[str, AfterValidator(lambda keys: SecretBox.of(keys) and keys)] = Field(
        default="", repr=False, validation_alias="HIFI_SECRET_KEYS"
    )

    @property
    def secret_box(self) -> SecretBox:
        return SecretBox.of(self.secret_keys)


class CopiesSettings(BaseSettings):
    """HIFI_KAFKA_REPLICAS and related variables, for every process that creates topics."""

    model_config = SettingsConfigDict(frozen=True)

    kafka_replicas: Annotated[int, Field(ge=1, le=100)] = Field(
        default=Copies().replicas, validation_alias="HIFI_KAFKA_REPLICAS"
    )
    kafka_in_sync_min: Annotated[int, Field(ge=1, le=100)] = Field(
        default=Copies().in_sync_min, validation_alias="HIFI_KAFKA_IN_SYNC_MIN"
    )
    # At most a day: a dead letter must not outlive the mark of its redrive. At least a minute: a
    # broker keeps four files open for each segment.
    kafka_segment_ms: Annotated[int, Field(ge=60_000, le=SEGMENT_MS)] | None = Field(
        default=None, validation_alias="HIFI_KAFKA_SEGMENT_MS"
    )
    kafka_topic_keys_left_out: str = Field(
        default="", validation_alias="HIFI_KAFKA_TOPIC_KEYS_LEFT_OUT"
    )

    @property
    def copies(self) -> Copies:
        if self.kafka_in_sync_min > self.kafka_replicas:
            raise SetupError(
                f"HIFI_KAFKA_IN_SYNC_MIN is {self.kafka_in_sync_min} of {self.kafka_replicas}"
                " copies (HIFI_KAFKA_REPLICAS): nothing could ever be stored."
            )
        left_out = (key.strip() for key in self.kafka_topic_keys_left_out.split(","))
        return Copies(
            self.kafka_replicas,
            self.kafka_in_sync_min,
            self.kafka_segment_ms,
            frozenset(key for key in left_out if key),
        )


# A broker can have some thousands of Kafka partitions, and there are about a dozen tier topics.
PartitionCount = Annotated[int, Field(ge=1, le=1_000)]


class TopicSettings(CopiesSettings):
    """The settings of copies, and the partition counts of topics that all streams share."""

    kafka_retry_partitions: PartitionCount = Field(
        default=RETRY_PARTITIONS, validation_alias="HIFI_KAFKA_RETRY_PARTITIONS"
    )
    kafka_dead_partitions: PartitionCount = Field(
        default=OUTCOME_PARTITIONS, validation_alias="HIFI_KAFKA_DEAD_PARTITIONS"
    )
    kafka_receipts_partitions: PartitionCount = Field(
        default=OUTCOME_PARTITIONS, validation_alias="HIFI_KAFKA_RECEIPTS_PARTITIONS"
    )
    kafka_ledger_partitions: PartitionCount = Field(
        default=OUTCOME_PARTITIONS, validation_alias="HIFI_KAFKA_LEDGER_PARTITIONS"
    )

    @property
    def partition_counts(self) -> PartitionCounts:
        return PartitionCounts(
            retry=self.kafka_retry_partitions,
            dead=self.kafka_dead_partitions,
            receipts=self.kafka_receipts_partitions,
            ledger=self.kafka_ledger_partitions,
        )


class ListenerSettings(BaseSettings):
    """The address for people and programs, and whether they must authenticate."""

    model_config = SettingsConfigDict(frozen=True)

    # Loopback by default, so that nothing is opened to a network by accident.
    host: str = defaults.HOST
    # 0 takes any free port.
    port: Port
    # `keys` asks every caller for a key; `off` lets everybody do everything. The address does not
    # decide it, because behind a proxy on the same machine loopback is open to the world.
    auth: Literal["off", "keys"] = "keys"
    # Allowed names in browsers' requests, besides addresses and names without a dot:
    # "hifi.example,gateway.internal". With keys the gateway answers to any name.
    hosts: str = ""

    @property
    def asks_for_keys(self) -> bool:
        return self.auth == "keys"

    @property
    def host_names(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.hosts.split(",") if name.strip())


def read_settings(kind: type[S], *, program: str, **given: object) -> S:
    """Read the settings of `program` from the environment; end the process if one is wrong.

    Call it once, at the start of a process. `given` values override the environment.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        problem = wrong_variable(error, prefix=str(kind.model_config.get("env_prefix", "")))
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
    except OSError as error:
        if error.errno not in _DISK_IS_FULL:
            raise
        sys.exit(f"{program}: the disk is full ({error}): free some space, and start it again.")
