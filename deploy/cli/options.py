"""Decides the options that several subcommands share: one name, one default, one variable each.

The defaults are those of `hifi up`, so that on one machine nothing need be given.
"""

from pathlib import Path
from typing import Annotated

import typer

from deploy.local.services import StackSettings

_DEFAULT = StackSettings(folder=Path("data"), cache=Path())

KAFKA_DEFAULT = f"127.0.0.1:{_DEFAULT.kafka_port}"
GATEWAY_DEFAULT = f"http://127.0.0.1:{_DEFAULT.gateway_port}"
DATA_DEFAULT = _DEFAULT.folder
KAFKA_PORT_DEFAULT = _DEFAULT.kafka_port
GATEWAY_PORT_DEFAULT = _DEFAULT.gateway_port
GATEWAY_METRICS_PORT_DEFAULT = _DEFAULT.gateway_metrics_port
DELIVERY_METRICS_PORT_DEFAULT = _DEFAULT.delivery_metrics_port
RETRIER_METRICS_PORT_DEFAULT = _DEFAULT.retrier_metrics_port
OBSERVE_METRICS_PORT_DEFAULT = _DEFAULT.observe_metrics_port
REALTIME_METRICS_PORT_DEFAULT = _DEFAULT.realtime_metrics_port
SAMPLE_PORT_DEFAULT = _DEFAULT.sample_port
CONSOLE_PORT_DEFAULT = _DEFAULT.console_port
CONSOLE_DEFAULT = f"http://127.0.0.1:{_DEFAULT.console_port}"


def _port(name: str, what: str) -> object:
    return typer.Option(envvar=f"HIFI_UP_{name}", help=what, min=1, max=65_535)


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
Data = Annotated[Path, typer.Option(envvar="HIFI_UP_DATA", help="Where everything is kept.")]
Brokers = Annotated[
    int, typer.Option(envvar="HIFI_UP_BROKERS", help="1, or 3: replicated, survives a broker.")
]
KafkaPort = Annotated[int, _port("KAFKA_PORT", "First Kafka port.")]
GatewayPort = Annotated[int, _port("GATEWAY_PORT", "Where to POST events.")]
GatewayMetricsPort = Annotated[int, _port("GATEWAY_METRICS_PORT", "Gateway's probes, metrics.")]
DeliveryMetricsPort = Annotated[int, _port("DELIVERY_METRICS_PORT", "Delivery's metrics.")]
RetrierMetricsPort = Annotated[int, _port("RETRIER_METRICS_PORT", "Retrier's metrics.")]
RealtimeMetricsPort = Annotated[
    int, _port("REALTIME_METRICS_PORT", "Metrics of real-time delivery, if any destination asks.")
]
ObserveMetricsPort = Annotated[int, _port("OBSERVE_METRICS_PORT", "Lag and loss as metrics.")]
SamplePort = Annotated[int, _port("SAMPLE_PORT", "Shows what arrives.")]
ConsolePort = Annotated[int, _port("CONSOLE_PORT", "Hifi in a browser.")]
