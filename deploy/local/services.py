"""Lists the services of the embedded stack, their settings, and how to check that each is ready."""

import signal
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError

from deploy.local.secret_keys import OPERATOR_KEY, VARIABLE
from deploy.local.stack_settings import StackSettings
from shared.runtime.defaults import HOST

# Loopback answers in a few ms; a driver on busy processors once took 1 s.
_ANSWER_TIMEOUT_S = 2.0
# The most characters of a service's problem that are shown.
_WORDS_MAX = 300
# How the sample destination's page begins; other programs like port 8090 too.
SAMPLE_TITLE = "Hifi sample destination"
# In the embedded stack, destinations are on loopback, like the sample destination.
_ALLOWS_PRIVATE = "true"
# A third of the others' share of a busy processor.
_AFTER_OTHERS = 5
# The services that get the keys to open secrets that the gateway has sealed.
_OPENS_SECRETS = frozenset({"delivery", "retrier", "pipelines", "observe"})


@dataclass(slots=True)
class Service:
    """One process of the stack, and how to check that it is ready."""

    name: str
    module: str
    env: Mapping[str, str]
    # Its ports, including the one for health.
    ports: tuple[int, ...]
    ready_url: str
    # The beginning of a line in the answer of a ready service.
    ready_line: str = "ready"

    @property
    def niceness(self) -> int:
        """Above 0, the service leaves processors to those that accept and send events."""
        return _AFTER_OTHERS if self.name in {"pipelines", "observe"} else 0

    @property
    def keys(self) -> set[str]:
        """The keys that it gets: to seal and open secrets, and to recognise the operator."""
        if self.name == "gateway":
            return {VARIABLE, OPERATOR_KEY}
        return {VARIABLE} if self.name in _OPENS_SECRETS else set()

    @property
    def user(self) -> str | None:
        """The service's user in a locked Kafka; None if it does not use Kafka."""
        return None if self.name == "sample" else self.module

    def is_ready(self) -> bool:
        return self.problem() is None

    def problem(self) -> str | None:
        """Return why the service is not ready, in its own words if possible; None if it is."""
        try:
            with urllib.request.urlopen(self.ready_url, timeout=_ANSWER_TIMEOUT_S) as response:  # noqa: S310 - loopback, ours
                lines = response.read().decode(errors="replace").splitlines()
        except HTTPError as refusal:
            with refusal:
                text = refusal.read(_WORDS_MAX).decode(errors="replace")
            return text.partition("\n")[0] or "it answers with an error"
        except (OSError, HTTPException, ValueError):
            return "it does not answer"
        is_well = any(line.startswith(self.ready_line) for line in lines)
        return None if is_well else "something else answers there"


def services_of(settings: StackSettings) -> Iterator[Service]:
    """Yield the services, the gateway first."""
    yield Service(
        name="gateway",
        module="gateway",
        env={
            "HIFI_GATEWAY_PORT": str(settings.gateway_port),
            "HIFI_GATEWAY_METRICS_PORT": str(settings.gateway_metrics_port),
            "HIFI_GATEWAY_TIME_SCALE": str(settings.time_scale),
            "HIFI_GATEWAY_OBSERVE": f"http://{HOST}:{settings.observe_metrics_port}",
            "HIFI_GATEWAY_ALLOW_PRIVATE": _ALLOWS_PRIVATE,
            "HIFI_GATEWAY_TABLES_FOLDER": str(settings.folder / "tables"),
            "HIFI_KAFKA_REPLICAS": str(settings.copies.replicas),
            "HIFI_KAFKA_IN_SYNC_MIN": str(settings.copies.in_sync_min),
        },
        ports=(settings.gateway_port, settings.gateway_metrics_port),
        ready_url=_url(settings.gateway_metrics_port, "readyz"),
    )
    # Delivery and the retrier share what they learn about a destination's capacity.
    flows = {"FLOW_FOLDER": str(settings.folder / "flows")}
    yield _lanes(settings, "delivery", more=flows)
    yield _lanes(settings, "retrier", more=flows)
    # Without a pipeline this process is small: Spark starts with the first pipeline.
    yield Service(
        name="pipelines",
        module="pipelines",
        env={
            "HIFI_PIPELINES_FOLDER": str(settings.folder / "pipelines"),
            "HIFI_PIPELINES_TABLES_FOLDER": str(settings.folder / "tables"),
            "HIFI_PIPELINES_JARS_CACHE": str(settings.cache),
            "HIFI_PIPELINES_METRICS_PORT": str(settings.pipelines_metrics_port),
            "HIFI_PIPELINES_EXECUTOR_MB": str(settings.spark_heap_mb),
            "HIFI_PIPELINES_ALLOW_PRIVATE": _ALLOWS_PRIVATE,
            "HIFI_PIPELINES_SQLITE_FOLDER": str(settings.folder / "databases"),
        },
        ports=(settings.pipelines_metrics_port,),
        ready_url=_url(settings.pipelines_metrics_port, "readyz"),
    )
    yield Service(
        name="observe",
        module="observe",
        env={
            "HIFI_OBSERVE_FOLDER": str(settings.folder / "observe"),
            "HIFI_OBSERVE_JARS_CACHE": str(settings.cache),
            "HIFI_OBSERVE_METRICS_PORT": str(settings.observe_metrics_port),
            "HIFI_OBSERVE_CONSOLE_PORT": str(settings.console_port),
            "HIFI_OBSERVE_CONSOLE_TIME_SCALE": str(settings.time_scale),
            "HIFI_OBSERVE_ALLOW_PRIVATE": _ALLOWS_PRIVATE,
        },
        ports=(settings.observe_metrics_port, settings.console_port),
        ready_url=_url(settings.observe_metrics_port, "readyz"),
    )
    yield Service(
        name="sample",
        module="deploy.local.sample_destination",
        env={"HIFI_SAMPLE_PORT": str(settings.sample_port)},
        ports=(settings.sample_port,),
        ready_url=_url(settings.sample_port, ""),
        ready_line=f"<title>{SAMPLE_TITLE}</title>",
    )


def _lanes(settings: StackSettings, name: str, *, more: Mapping[str, str]) -> Service:
    """Return a service that runs Spark lanes; its module has its name."""
    port: int = getattr(settings, f"{name}_metrics_port")
    env = {
        "FOLDER": str(settings.folder / name),
        "JARS_CACHE": str(settings.cache),
        "METRICS_PORT": str(port),
        "HEAP_MB": str(settings.spark_heap_mb),
        "TIME_SCALE": str(settings.time_scale),
        "ALLOW_PRIVATE": _ALLOWS_PRIVATE,
        **more,
    }
    return Service(
        name=name,
        module=name,
        env={f"HIFI_{name.upper()}_{variable}": value for variable, value in env.items()},
        ports=(port,),
        ready_url=_url(port, "readyz"),
    )


def _url(port: int, path: str) -> str:
    return f"http://{HOST}:{port}/{path}"


def answer_of(url: str) -> bytes:
    """Return the answer of a process on this machine; empty on an error or without an answer.

    The process may be another program, which does not speak HTTP.
    """
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_S) as response:  # noqa: S310 - loopback, ours
            answer: bytes = response.read()
    except (OSError, HTTPException, ValueError):
        return b""
    return answer


def how_it_ended(exit_code: int | None) -> str:
    """Return an exit code in words."""
    if exit_code is None:
        return "still runs"
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"
