"""Lists the settings of the embedded stack: one line each, with default, help text and bounds.

`hifi up`, `doctor` and `status` take their options from here (deploy/cli/options.py).
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shared.runtime import defaults
from shared.runtime.java.cache_folder import default_cache

if TYPE_CHECKING:
    from shared.event.topic_safety import Copies

# Relative to the working directory.
DATA = Path("data")
# Files in the data folder: the stores, and the folder that may hold stores.
STORES, FOLDERS = "stores.toml", "store-folders"


def _option(default: Any, words: str, **bounds: float) -> Any:
    return field(default=default, metadata={"help": words, **bounds})


def _port(default: int, words: str) -> Any:
    return _option(default, words, min=1, max=65_535)


@dataclass(frozen=True, slots=True)
class StackSettings:
    """The settings that a person can choose for the embedded stack."""

    folder: Path = _option(DATA, "The data folder.")  # noqa: RUF009 - makes a field
    cache: Path = field(default_factory=default_cache)
    # Whether background services leave processors to others (services.py).
    is_nice: bool = True
    brokers: Literal[1, 3] = _option(1, "Kafka brokers: 1, or 3, which survive a loss.")
    secure: bool = _option(False, "Lock Kafka: TLS, a user and rights for each service.")
    kafka_port: int = _port(defaults.KAFKA_PORT, "First Kafka port.")
    gateway_port: int = _port(defaults.GATEWAY_PORT, "Port to POST events to.")
    gateway_metrics_port: int = _port(defaults.GATEWAY_METRICS_PORT, "Gateway probes, metrics.")
    delivery_metrics_port: int = _port(defaults.DELIVERY_METRICS_PORT, "Delivery's metrics.")
    retrier_metrics_port: int = _port(defaults.RETRIER_METRICS_PORT, "Retrier's metrics.")
    pipelines_metrics_port: int = _port(defaults.PIPELINES_METRICS_PORT, "Pipelines' metrics.")
    observe_metrics_port: int = _port(defaults.OBSERVE_METRICS_PORT, "Lag and loss metrics.")
    console_port: int = _port(defaults.CONSOLE_PORT, "The console.")
    sample_port: int = _port(defaults.SAMPLE_PORT, "The sample destination.")
    archive: str | None = _option(None, "Folder for archives, or s3://BUCKET/PATH (gs, az).")
    kafka_heap_mb: int | None = _option(None, "Heap of each broker.", min=128)
    spark_heap_mb: int = _option(1024, "Heap of each Spark driver.", min=512)
    # Below 1 all retry delays shrink by this factor, to show hours of retries in minutes.
    time_scale: float = _option(1.0, "Factor for retry delays: 0.01 is 100x faster.", min=0.0001)

    @property
    def kafka_ports(self) -> list[int]:
        """The brokers' ports: consecutive from the first."""
        return [self.kafka_port + number for number in range(self.brokers)]

    @property
    def operator_file(self) -> Path:
        """The file to source in a shell, for the operator's access to a locked Kafka."""
        return self.folder / "kafka-operator.env"

    @property
    def copies(self) -> "Copies":
        """The copies of each event: one broker has one copy, three have the default number."""
        from shared.event.topic_safety import Copies  # noqa: PLC0415 - rarely needed

        return Copies(1, 1) if self.brokers == 1 else Copies()

    def ports(self) -> list[tuple[str, int]]:
        """Every port with the option that changes it, Kafka's first."""
        kafka = [(option_of("kafka_port"), port) for port in self.kafka_ports]
        others = (name for name in PORTS if name != "kafka_port")
        return [*kafka, *((option_of(name), getattr(self, name)) for name in others)]


def option_of(name: str) -> str:
    """Return a setting's option on the command line."""
    return "--data" if name == "folder" else f"--{name.replace('_', '-')}"


PORTS = tuple(setting.name for setting in fields(StackSettings) if setting.name.endswith("_port"))
