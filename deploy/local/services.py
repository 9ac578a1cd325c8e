"""Decides which services the embedded stack runs, what each is told, and how to see it is ready."""

import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from deploy.local.children import Child
from deploy.local.ports import HOST
from shared.metric_names import DELIVERY_LANE_UP, OBSERVE_UP, RETRIER_LANE_UP

# Loopback answers in a few ms; a driver whose processors are all busy was seen to take 1 s.
_ANSWER_TIMEOUT_S = 2.0
# The delivery process for destinations that ask for real time.
REALTIME = "realtime"
# How the sample destination's page begins; other programs like port 8090 too.
SAMPLE_TITLE = "Hifi sample destination"


@dataclass(frozen=True, slots=True)
class StackSettings:
    """What a person may choose about the embedded stack."""

    folder: Path
    cache: Path
    brokers: Literal[1, 3] = 1
    kafka_port: int = 9092
    gateway_port: int = 8080
    gateway_metrics_port: int = 8081
    delivery_metrics_port: int = 8082
    retrier_metrics_port: int = 8083
    observe_metrics_port: int = 8084
    console_port: int = 8088
    realtime_metrics_port: int = 8085
    sample_port: int = 8090
    kafka_heap_mb: int | None = None
    spark_heap_mb: int = 1024
    # Below 1 all retry delays shrink alike, to see hours of retrying in minutes.
    time_scale: float = 1.0
    # More for the environment of observe, HIFI_OBSERVE_*: what a test or a demonstration hurries.
    observe_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def kafka_ports(self) -> list[int]:
        """Broker ports: consecutive from the first."""
        return [self.kafka_port + number for number in range(self.brokers)]

    def ports(self) -> list[tuple[str, int]]:
        """Every port with the option that changes it, Kafka's first."""
        return [
            *(("--kafka-port", port) for port in self.kafka_ports),
            ("--gateway-port", self.gateway_port),
            ("--gateway-metrics-port", self.gateway_metrics_port),
            ("--delivery-metrics-port", self.delivery_metrics_port),
            ("--retrier-metrics-port", self.retrier_metrics_port),
            ("--observe-metrics-port", self.observe_metrics_port),
            ("--console-port", self.console_port),
            ("--realtime-metrics-port", self.realtime_metrics_port),
            ("--sample-port", self.sample_port),
        ]


@dataclass(slots=True)
class Service:
    """One process of ours, how to tell that it is ready, and the child that runs it."""

    name: str
    module: str
    env: Mapping[str, str]
    # Its port, and the port that tells of its health, by the option that changes each.
    ports: Mapping[str, int]
    ready_url: str
    # The answer holds a line that begins and ends so.
    ready_line: tuple[str, str]
    child: Child | None = None

    @property
    def keeps_secrets(self) -> bool:
        """Whether it seals the secrets of destinations, or opens them."""
        return self.name in {"gateway", "delivery", REALTIME, "retrier"}

    def is_ready(self) -> bool:
        begin, end = self.ready_line
        return any(line.startswith(begin) and line.endswith(end) for line in self._answer())

    def _answer(self) -> list[str]:
        try:
            with urllib.request.urlopen(self.ready_url, timeout=_ANSWER_TIMEOUT_S) as response:  # noqa: S310 - loopback, ours
                if response.status != HTTPStatus.OK:
                    return []
                text: str = response.read().decode(errors="replace")
        except (urllib.error.URLError, OSError, ValueError):
            return []
        return text.splitlines()


def services_of(settings: StackSettings) -> Iterator[Service]:
    """In the order in which they stop: first what takes events in, last what takes them out."""
    yield Service(
        name="gateway",
        module="gateway",
        env={
            "HIFI_GATEWAY_PORT": str(settings.gateway_port),
            "HIFI_GATEWAY_METRICS_PORT": str(settings.gateway_metrics_port),
            "HIFI_GATEWAY_TIME_SCALE": str(settings.time_scale),
            **_allow_private("gateway"),
        },
        ports={
            "--gateway-port": settings.gateway_port,
            "--gateway-metrics-port": settings.gateway_metrics_port,
        },
        ready_url=f"http://{HOST}:{settings.gateway_metrics_port}/readyz",
        ready_line=("ready", ""),
    )
    for name, port, lane_up in (
        ("delivery", settings.delivery_metrics_port, DELIVERY_LANE_UP),
        ("retrier", settings.retrier_metrics_port, RETRIER_LANE_UP),
    ):
        prefix = f"HIFI_{name.upper()}_"
        yield Service(
            name=name,
            module=name,
            env={
                f"{prefix}FOLDER": str(settings.folder / name),
                f"{prefix}JARS_CACHE": str(settings.cache),
                f"{prefix}METRICS_PORT": str(port),
                f"{prefix}HEAP_MB": str(settings.spark_heap_mb),
                f"{prefix}TIME_SCALE": str(settings.time_scale),
                # Both learn from each other what a destination can take.
                f"{prefix}FLOW_FOLDER": str(settings.folder / "flows"),
                **_allow_private(name),
            },
            ports={f"--{name}-metrics-port": port},
            ready_url=f"http://{HOST}:{port}/metrics",
            # It answers long before it is ready: some lane must run.
            ready_line=(lane_up.name, " 1.0"),
        )
    yield _observe(settings)
    yield Service(
        name="sample",
        module="deploy.local.sample_destination",
        env={"HIFI_SAMPLE_PORT": str(settings.sample_port)},
        ports={"--sample-port": settings.sample_port},
        ready_url=f"http://{HOST}:{settings.sample_port}/",
        ready_line=("<title>", f"{SAMPLE_TITLE}</title>"),
    )


def realtime_service(settings: StackSettings) -> Service:
    """The second delivery process, which the stack starts when a destination asks for real time."""
    port = settings.realtime_metrics_port
    return Service(
        name=REALTIME,
        module="delivery",
        env={
            "HIFI_DELIVERY_LATENCY": "realtime",
            "HIFI_DELIVERY_FOLDER": str(settings.folder / "delivery"),
            "HIFI_DELIVERY_JARS_CACHE": str(settings.cache),
            "HIFI_DELIVERY_METRICS_PORT": str(port),
            "HIFI_DELIVERY_HEAP_MB": str(settings.spark_heap_mb),
            "HIFI_DELIVERY_TIME_SCALE": str(settings.time_scale),
            "HIFI_DELIVERY_MAKES_CLASS_ARCHIVE": "false",
            **_allow_private("delivery"),
        },
        ports={"--realtime-metrics-port": port},
        ready_url=f"http://{HOST}:{port}/metrics",
        ready_line=(DELIVERY_LANE_UP.name, " 1.0"),
    )


def _observe(settings: StackSettings) -> Service:
    return Service(
        name="observe",
        module="observe",
        env={
            "HIFI_OBSERVE_FOLDER": str(settings.folder / "observe"),
            "HIFI_OBSERVE_JARS_CACHE": str(settings.cache),
            "HIFI_OBSERVE_METRICS_PORT": str(settings.observe_metrics_port),
            "HIFI_OBSERVE_CONSOLE_PORT": str(settings.console_port),
            "HIFI_OBSERVE_CONSOLE_TIME_SCALE": str(settings.time_scale),
            **settings.observe_env,
        },
        ports={
            "--observe-metrics-port": settings.observe_metrics_port,
            "--console-port": settings.console_port,
        },
        ready_url=f"http://{HOST}:{settings.observe_metrics_port}/metrics",
        ready_line=(OBSERVE_UP.name, " 1.0"),
    )


def _allow_private(service: str) -> dict[str, str]:
    """On one's own machine destinations are on loopback, as the sample destination is."""
    return {f"HIFI_{service.upper()}_ALLOW_PRIVATE": "true"}


def how_it_ended(exit_code: int | None) -> str:
    """An exit code as people say it."""
    if exit_code is None:
        return "still runs"
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"
