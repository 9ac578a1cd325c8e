"""Runs all of Hifi on one machine, with the order of starts and stops.

Kafka starts first, then come its topics, then the services, and through the gateway a first stream
and destination. The gateway stops first and Kafka last, so that accepted events can still be
delivered meanwhile.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from deploy.local.children import Child
from deploy.local.cluster import Cluster
from deploy.local.ports import require_free
from deploy.local.restarts import Restarts
from deploy.local.secret_keys import OPERATOR_KEY, VARIABLE, operator_key, secret_keys
from deploy.local.services import (
    Service,
    how_it_ended,
    services_of,
)
from deploy.local.stack_settings import StackSettings
from deploy.local.stores import write_stores
from shared.event.topics import fixed_specs, stream_spec
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.defaults import HOST
from shared.runtime.files.one_owner import own_folder
from shared.runtime.files.service_deaths import write_deaths
from shared.runtime.java.jars import OnProgress, ensure_jars
from shared.runtime.java.java import find_java
from shared.runtime.kafka.settings import KafkaAccess
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.machine.user import user_name
from shared.runtime.settings import TopicSettings, read_settings
from shared.runtime.setup_error import SetupError

DEMO_STREAM = "demo"
DEMO_DESTINATION = "sample"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# A gateway that listens on all addresses answers on loopback too.
_ANY_HOST = "0.0.0.0"  # noqa: S104 - compared with, never bound
# On two busy cores, two Spark drivers and a gateway start together within half a minute; with six
# more stacks on these cores it took 94 s.
_READY_TIMEOUT_S = 180.0
_READY_LOOK_S = 0.1
# The longest stop of a service: 20 s to drain, 20 s for its JVM to end (the first time, it writes
# its class archive), and some reserve.
_STOP_TIMEOUT_S = 60.0


class Stack:
    """The embedded stack. `start` either succeeds or leaves nothing running."""

    def __init__(
        self, settings: StackSettings, *, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self.services = list(services_of(settings))
        # The processes of the services, by name.
        self.children: dict[str, Child] = {}
        self._environ = environ
        self._say = say
        self._resources = ExitStack()
        # The variables that name the stores to services that archive.
        self._stores: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._topics: TopicSettings
        self.restarts = Restarts()
        self.cluster = Cluster(
            folder=settings.folder / "kafka",
            cache=settings.cache,
            brokers=settings.brokers,
            ports=settings.kafka_ports,
            heap_mb=settings.kafka_heap_mb,
            is_secure=settings.secure,
        )

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def deaths_file(self) -> Path:
        """The file that tells the console which services die repeatedly."""
        return self.settings.folder / "deaths.json"

    @property
    def gateway(self) -> str:
        """The gateway's address, which the environment may change."""
        host = self._environ.get("HIFI_GATEWAY_HOST", HOST)
        scheme = "https" if "HIFI_GATEWAY_TLS_CERT_FILE" in self._environ else "http"
        return f"{scheme}://{HOST if host == _ANY_HOST else host}:{self.settings.gateway_port}"

    def start(self, on_progress: OnProgress) -> None:
        """Start everything; a SetupError names the obstacle."""
        try:
            self._require_all(on_progress)
            self.deaths_file.unlink(missing_ok=True)
            self._say("starting Kafka")
            self.cluster.start()
            if self.cluster.lock is not None:
                self.cluster.lock.write_operator(self.settings.operator_file)
            self._say("making topics")
            asyncio.run(self._prepare_topics())
            # Together: two Spark drivers start side by side in little more time than one.
            for service in self.services:
                self.spawn(service)
            for service in self.services:
                self._say(f"starting {service.name}")
                self._wait_ready(service)
                if service.name == "gateway":
                    self._set_up_demo()
        except BaseException:
            self.stop()
            raise

    def look_after(self) -> None:
        """Restart dead services; one that dies repeatedly waits longer, and others keep running."""
        for service in self.services:
            child = self.children[service.name]
            self._revive(service.name, child, partial(self.spawn, service))
        for broker_id in self.cluster.broker_ids:
            child, start = self.cluster.child(broker_id), partial(self.cluster.restart, broker_id)
            self._revive(f"Kafka broker {broker_id}", child, start)

    def ailing(self) -> list[str]:
        """Return a sentence for each service that dies repeatedly."""
        at_ms = now_ms()
        deaths = self.restarts.again_and_again(now_ms=at_ms)
        return [death.sentence(now_ms=at_ms) for death in deaths]

    def spawn(self, service: Service) -> None:
        """Start the process of a service that is not running."""
        prefix = f"HIFI_{service.module.partition('.')[0].upper()}_"
        places = {
            f"{prefix}BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "HIFI_OBSERVE_CONSOLE_GATEWAY": self.gateway,
            "HIFI_OBSERVE_CONSOLE_DEATHS_FILE": str(self.deaths_file),
        }
        keys = {name: key for name, key in self._keys.items() if name in service.keys}
        self.children[service.name] = Child(
            service.name,
            [sys.executable, "-m", service.module],
            log=self.settings.folder / "logs" / f"{service.name}.log",
            env={
                **_auth(self._environ),
                **_but_of_kafka(self._environ),
                **service.env,
                **(self._stores if service.name == "pipelines" else {}),
                **places,
                **keys,
                **self._kafka_access(service),
            },
            niceness=service.niceness if self.settings.is_nice else 0,
        )

    def _kafka_access(self, service: Service) -> dict[str, str]:
        """Return the service's own Kafka password and settings, and no other service's."""
        lock, user = self.cluster.lock, service.user
        return {} if lock is None or user is None else lock.variables(user)

    def stop(self) -> None:
        """Drain and stop everything, in order; safe to call at any point of a start."""
        # The services of a group drain at the same time.
        for names in (("gateway",), ("pipelines",), ("delivery", "retrier"), ("observe", "sample")):
            children = [self.children[name] for name in names if name in self.children]
            for child in children:
                child.send(signal.SIGTERM)
            for child in children:
                self._say(f"stopping {child.name}")
                child.stop(_STOP_TIMEOUT_S)
        self.children.clear()
        if self.cluster.running:
            self._say("stopping Kafka")
        self.cluster.stop()
        self._resources.close()

    def stop_at_once(self) -> None:
        """Kill everything, if the user does not wait; acknowledged events are safe on disk."""
        for child in (*self.children.values(), *map(self.cluster.child, self.cluster.running)):
            child.send(signal.SIGKILL)

    def _require_all(self, on_progress: OnProgress) -> None:
        """Check everything that can be checked before anything runs."""
        folder = self.settings.folder
        self._resources.enter_context(own_folder(folder, what="hifi up"))
        self._keys = {
            VARIABLE: secret_keys(folder, self._environ),
            OPERATOR_KEY: operator_key(folder, self._environ),
        }
        self._stores = write_stores(self.settings, self._environ)
        self._topics = read_settings(TopicSettings, program="hifi up")
        find_java()
        user_name()
        for option, port in self.settings.ports():
            require_free(port, what=f"{option.removeprefix('--').replace('-', ' ')} ({option})")
        for jar_set in ("broker", "spark"):
            self._say(f"checking the {jar_set} jars")
            ensure_jars(jar_set, cache=self.settings.cache, on_progress=on_progress)

    async def _prepare_topics(self) -> None:
        tiers = [tier.name for tier in RetrySchedule().tiers]
        async with topic_admin(self.bootstrap_servers) as admin:
            specs = [*fixed_specs(tiers, self._topics.partition_counts), stream_spec(DEMO_STREAM)]
            copies = replace(self.settings.copies, segment_ms=self._topics.kafka_segment_ms)
            await admin.create_missing(specs, copies)

    def _set_up_demo(self) -> None:
        """Create a stream with a destination, so that the first event is delivered."""
        client = ControlClient(self.gateway, self._keys[OPERATOR_KEY])
        url = f"http://{HOST}:{self.settings.sample_port}/"
        path = "streams", DEMO_STREAM, "destinations", DEMO_DESTINATION
        try:
            if client.call("GET", *path)["url"] == url:
                return
        except RefusedError:
            client.call("PUT", "streams", DEMO_STREAM, body={})
        client.call("PUT", *path, body={"url": url})

    def _revive(self, name: str, child: Child, start: Callable[[], None]) -> None:
        """Restart a process if it has died and its delay is over."""
        restarts = self.restarts
        if not child.alive and not restarts.is_down(name):
            # Its own children may have outlived it, and hold its ports and folders.
            child.kill()
            self._note_death(name, how_it_ended(child.exit_code), _last_words(child))
        if restarts.is_due(name, now_ms=now_ms()):
            try:
                start()
            except OSError as error:
                # There is no room for its log, or for another process.
                self._note_death(name, "cannot be started", f"{error}.")
            else:
                restarts.started(name)

    def _note_death(self, name: str, how: str, last_words: str) -> None:
        at_ms = now_ms()
        death = self.restarts.died(name, how, last_words, now_ms=at_ms)
        if death.again_at_ms <= at_ms:
            self._say(f"{name} {how} and is started again")
            return
        self._say(death.sentence(now_ms=at_ms))
        # It may have died of a full disk.
        with suppress(OSError):
            write_deaths(self.deaths_file, self.restarts.again_and_again(now_ms=at_ms))

    def _wait_ready(self, service: Service) -> None:
        child = self.children[service.name]
        until_s = time.monotonic() + _READY_TIMEOUT_S
        while not service.is_ready():
            for other in self.children.values():
                # Any death matters: the awaited service may itself wait for the dead one.
                if not other.alive:
                    raise SetupError(_how_it_died(other.name, other))
            if time.monotonic() > until_s:
                raise SetupError(
                    f"{service.name} is not ready after {_READY_TIMEOUT_S:.0f} s"
                    f" ({service.problem()}): its log is {child.log}."
                )
            time.sleep(_READY_LOOK_S)


def _how_it_died(name: str, child: Child) -> str:
    return f"{name} {how_it_ended(child.exit_code)}: {_last_words(child)}"


def _last_words(child: Child) -> str:
    last = [line for line in child.tail_log(20) if line.strip()]
    return f"{last[-1] if last else 'it wrote nothing'} (its log is {child.log})."


def _but_of_kafka(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the settings for other Kafkas."""
    of_kafka = {f"HIFI_KAFKA_{name}".upper() for name in KafkaAccess.model_fields}
    return {name: value for name, value in environ.items() if name not in of_kafka}


def _auth(environ: Mapping[str, str]) -> dict[str, str]:
    """Return whether each service requires keys: not if only this machine can reach it."""
    hosts = {
        prefix: environ.get(f"{prefix}HOST", HOST)
        for prefix in ("HIFI_GATEWAY_", "HIFI_OBSERVE_CONSOLE_")
    }
    return {
        f"{prefix}AUTH": "off" if host in _LOOPBACK else "keys" for prefix, host in hosts.items()
    }
