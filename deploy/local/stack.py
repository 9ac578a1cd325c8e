"""Decides how all of Hifi runs on one machine: what starts after what, what stops before what.

Kafka first, then its topics and a first stream and destination, then the services; they stop the
other way round, so that what was accepted can still be delivered while the rest winds down.
"""

import asyncio
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deploy.local.children import Child
from deploy.local.cluster import Cluster
from deploy.local.ports import HOST, require_free
from shared.configuration import Destination, Stream
from shared.metric_names import DELIVERY_LANE_UP, RETRIER_LANE_UP
from shared.runtime.config_topic import read_config, write_config
from shared.runtime.jars import OnProgress, ensure_jars
from shared.runtime.one_owner import own_folder
from shared.runtime.setup_error import SetupError
from shared.runtime.topic_admin import topic_admin
from shared.schedule import RetrySchedule
from shared.topics import fixed_specs, stream_spec

DEMO_STREAM = "demo"
DEMO_DESTINATION = "sample"
# Two Spark drivers and a gateway start at once on two busy cores within half a minute.
_READY_TIMEOUT_S = 120.0
_READY_LOOK_S = 0.1
# What a service may take to drain: its own limit, and a little.
_STOP_TIMEOUT_S = 30.0
# A service that dies more often than this is not mended by another start.
_RESTARTS_MAX = 3


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
    sample_port: int = 8090
    kafka_heap_mb: int | None = None
    spark_heap_mb: int = 1024
    # Below 1 all retry delays shrink alike, to see hours of retrying in minutes.
    time_scale: float = 1.0

    @property
    def kafka_ports(self) -> list[int]:
        """Broker ports: consecutive from the first."""
        return [self.kafka_port + number for number in range(self.brokers)]

    def ports(self) -> dict[str, int]:
        """Every port with the option that changes it."""
        return {
            "--gateway-port": self.gateway_port,
            "--gateway-metrics-port": self.gateway_metrics_port,
            "--delivery-metrics-port": self.delivery_metrics_port,
            "--retrier-metrics-port": self.retrier_metrics_port,
            "--sample-port": self.sample_port,
        }


@dataclass(slots=True)
class Service:
    """One child process of ours, and how to tell that it is ready."""

    name: str
    module: str
    env: Mapping[str, str]
    ready_url: str
    # A text that the answer must hold, for a service that answers before it is ready.
    ready_text: str = ""
    child: Child | None = None
    restarts: int = 0


class Stack:
    """The embedded stack. `start` either succeeds or leaves nothing running."""

    def __init__(
        self, settings: StackSettings, *, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self._environ = environ
        self._say = say
        self._held = ExitStack()
        self._cluster = Cluster(
            folder=settings.folder / "kafka",
            cache=settings.cache,
            brokers=settings.brokers,
            ports=settings.kafka_ports,
            heap_mb=settings.kafka_heap_mb,
        )
        self.services = list(_services(settings))

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    def start(self, on_progress: OnProgress) -> None:
        """Bring everything up; a SetupError says what stands in the way."""
        self._held.enter_context(own_folder(self.settings.folder, what="hifi up"))
        try:
            for option, port in self.settings.ports().items():
                require_free(port, what=f"{option.removeprefix('--').replace('-', ' ')} ({option})")
            for jar_set in ("broker", "spark"):
                ensure_jars(jar_set, cache=self.settings.cache, on_progress=on_progress)
            self._say("Kafka")
            self._cluster.start()
            asyncio.run(self._prepare_topics())
            for service in self.services:
                self._spawn(service)
            for service in self.services:
                self._say(service.name)
                self._wait_ready(service)
        except BaseException:
            self.stop()
            raise

    def look_after(self) -> None:
        """Start again what has died; SetupError when that has not helped."""
        for service in self.services:
            assert service.child is not None, "look_after is for a started stack"
            if service.child.alive:
                continue
            if service.restarts >= _RESTARTS_MAX:
                raise SetupError(_obituary(service))
            service.restarts += 1
            self._say(f"{service.name} died and is started again")
            self._spawn(service)
        if len(self._cluster.running) < self.settings.brokers:
            raise SetupError(
                f"A Kafka broker has stopped: its log is under {self.settings.folder / 'kafka'}."
            )

    def stop(self) -> None:
        """Drain and stop everything, in order; safe to call at any point of a start."""
        for service in self.services:
            if service.child is not None:
                self._say(f"stopping {service.name}")
                service.child.stop(_STOP_TIMEOUT_S)
                service.child = None
        self._say("stopping Kafka")
        self._cluster.stop()
        self._held.close()

    async def _prepare_topics(self) -> None:
        tiers = [tier.name for tier in RetrySchedule().tiers]
        async with topic_admin(self.bootstrap_servers) as admin:
            await admin.create_missing([*fixed_specs(tiers), stream_spec(DEMO_STREAM)])
        known = await read_config(self.bootstrap_servers)
        sample = Destination(
            stream=DEMO_STREAM,
            name=DEMO_DESTINATION,
            url=f"http://{HOST}:{self.settings.sample_port}/",
        )
        if known.destinations.get(sample.id) != sample:
            await write_config(self.bootstrap_servers, [Stream(DEMO_STREAM), sample])

    def _spawn(self, service: Service) -> None:
        service.child = Child(
            service.name,
            [sys.executable, "-m", service.module],
            log=self.settings.folder / "logs" / f"{service.name}.log",
            env={**self._environ, **service.env, **self._kafka_env(service)},
        )

    def _kafka_env(self, service: Service) -> dict[str, str]:
        prefix = f"HIFI_{service.name.upper()}_"
        return {f"{prefix}BOOTSTRAP_SERVERS": self.bootstrap_servers}

    def _wait_ready(self, service: Service) -> None:
        assert service.child is not None, "a service is spawned before it is waited for"
        until_s = time.monotonic() + _READY_TIMEOUT_S
        while not _answers(service.ready_url, service.ready_text):
            if not service.child.alive:
                raise SetupError(_obituary(service))
            if time.monotonic() > until_s:
                raise SetupError(
                    f"{service.name} is not ready after {_READY_TIMEOUT_S:.0f} s:"
                    f" its log is {service.child.log}."
                )
            time.sleep(_READY_LOOK_S)


def _services(settings: StackSettings) -> Iterator[Service]:
    """In the order in which they stop: first what takes events in, last what takes them out."""
    yield Service(
        name="gateway",
        module="gateway",
        env={
            "HIFI_GATEWAY_PORT": str(settings.gateway_port),
            "HIFI_GATEWAY_METRICS_PORT": str(settings.gateway_metrics_port),
        },
        ready_url=f"http://{HOST}:{settings.gateway_metrics_port}/readyz",
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
            },
            ready_url=f"http://{HOST}:{port}/metrics",
            ready_text=lane_up.name,
        )
    yield Service(
        name="sample",
        module="deploy.local.sample_destination",
        env={"HIFI_SAMPLE_PORT": str(settings.sample_port)},
        ready_url=f"http://{HOST}:{settings.sample_port}/",
    )


def _answers(url: str, text: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - loopback, ours
            return response.status == 200 and text in response.read().decode()  # noqa: PLR2004
    except (urllib.error.URLError, OSError):
        return False


def _obituary(service: Service) -> str:
    assert service.child is not None, "only a started service can die"
    last = [line for line in service.child.tail_log(20) if line.strip()]
    return (
        f"{service.name} has stopped: {last[-1] if last else 'it wrote nothing'}"
        f" (its log is {service.child.log})."
    )
