"""A machine of each group boots, is ready, and is taken away by a spot notice.

Everything runs in a network of its own, with loopback and the metadata service only: fetching
anything else would fail. Kafka has access control, as on AWS, and the machines log in with secrets
from the store. A gateway drains, and no sender notices.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from deploy.aws.__main__ import MADE
from deploy.aws.machine.instance import ADDRESS
from deploy.aws.machine.load import USE
from deploy.aws.machine.units import HOME, SERVICES
from deploy.aws.services import services_of
from deploy.aws.topics import topic_variables
from deploy.local.cluster import Cluster
from shared.config.destination import Destination
from shared.event.rights import RIGHTS
from shared.runtime.java.cache_folder import default_cache
from tests.integration.delivery.test_spark_cluster import Traffic, make
from tests.support.deploy.aws_sites import site_of
from tests.support.deploy.fake_aws import FakeAws, fake_aws, machine_config
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import JSON, new_stream, stored_ids
from tests.support.servers.keep_alive_proxy import Target, keeping_alive
from tests.support.servers.own_network import own_network
from tests.support.servers.scripted_destination import scripted_destination

pytestmark = [pytest.mark.integration, pytest.mark.long]

P = TypeVar("P", str, bytes)
ROOT = Path(__file__).parents[3]
MACHINE = (sys.executable, "-m", "deploy.aws.machine")
# A test's machine differs from one of a site: a Kafka of one broker, requests without keys, a
# destination on loopback.
HERE = {
    "HIFI_KAFKA_REPLICAS": "1",
    "HIFI_KAFKA_IN_SYNC_MIN": "1",
    "HIFI_GATEWAY_AUTH": "off",
    "HIFI_GATEWAY_WORKERS": "1",
    "HIFI_DELIVERY_ALLOW_PRIVATE": "true",
}
RATING = 1_000.0
METADATA = ADDRESS.removeprefix("http://")
REQUESTS_S = 40
# A machine hears of its end from AWS, and looks for it at intervals.
DRAINED_WITHIN_S = 60


@pytest.fixture(scope="module", autouse=True)
def alone(jars_cache: Path) -> Iterator[None]:
    """Run all tests in a network of their own, with the jars that an image has."""
    del jars_cache
    with own_network(METADATA):
        yield


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, alone: None) -> Iterator[Cluster]:
    """Start a Kafka here: the session's is in another network."""
    del alone
    folder = tmp_path_factory.mktemp("kafka")
    with Cluster(folder=folder, cache=default_cache(), is_secure=True) as cluster:
        yield cluster


@dataclass
class OpenLoop:
    """Traffic that sends each batch when it is due, whatever became of the last one."""

    url: str
    sent: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    # The longest time between a request's due time and its sending.
    late_s: float = 0.0

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.accepted) >= count, what=f"{count} answers", timeout_s=60)

    async def send(self, stop: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        limits = httpx.Limits(max_connections=500, keepalive_expiry=4)
        async with (
            httpx.AsyncClient(timeout=30, limits=limits) as client,
            asyncio.TaskGroup() as requests,
        ):
            due_s = loop.time()
            while not stop.is_set():
                self.sent.append(f"e{len(self.sent)}")
                requests.create_task(self._one(client, self.sent[-1]))
                self.late_s = max(self.late_s, loop.time() - due_s)
                due_s += 1 / REQUESTS_S
                await asyncio.sleep(due_s - loop.time())

    async def _one(self, client: httpx.AsyncClient, event_id: str) -> None:
        try:
            body = json.dumps([{"id": event_id}])
            answer = await client.post(self.url, content=body, headers=JSON)
        except httpx.TransportError as error:
            self.errors.append(repr(error))
            return
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.accepted.append(event_id)


@contextmanager
def sending(url: str) -> Iterator[OpenLoop]:
    client, stop = OpenLoop(url), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(client.send(stop)))
    thread.start()
    try:
        yield client
    finally:
        stop.set()
        thread.join(timeout=60)
        assert not thread.is_alive()


@dataclass
class Machine:
    """A machine booted as on AWS: its services, and the process that watches for its end."""

    aws: FakeAws
    services: dict[str, subprocess.Popen[bytes]]
    stay: subprocess.Popen[str]
    # The first service's address for requests, and its address for readiness.
    target: Target

    def is_ready(self) -> bool:
        assert all(each.poll() is None for each in self.services.values())
        return bool(self.aws.called("SignalResource"))

    def taken_away(self) -> float:
        """Give notice; return how long the services took to end, each with exit code 0."""
        noticed_s = time.monotonic()
        self.aws.notice()
        assert self.stay.wait(timeout=DRAINED_WITHIN_S) == 0
        took_s = time.monotonic() - noticed_s
        codes = {name: each.returncode for name, each in self.services.items()}
        assert codes == dict.fromkeys(codes, 0)
        assert self.aws.calls[-1]["LifecycleHookName"] == "end"
        return took_s


@contextmanager
def machine(
    kafka: Cluster, folder: Path, group: str, *, metadata: tuple[str, int] = (METADATA, 80)
) -> Iterator[Machine]:
    """Boot, start and watch a machine with the image's programs, but without systemd."""
    told = services_of(site_of(), group)
    with fake_aws(*metadata) as aws, ExitStack() as resources:
        aws.brokers = kafka.bootstrap_servers
        aws.secrets = secrets_of(kafka)
        urls = {each.name: [f"http://127.0.0.1:{port}" for port in free_ports(2)] for each in told}
        services = {
            each.name: {
                "secrets": [each.name, *each.secrets],
                "env": {
                    **each.env,
                    **topic_variables(site_of()),
                    **HERE,
                    "HIFI_KAFKA_CA_FILE": certificate_of(kafka),
                    **own(each.name, folder, urls[each.name]),
                },
                "ready": [f"{urls[each.name][1]}/readyz"],
                "live": [f"{urls[each.name][1]}/livez"],
            }
            for each in told
        }
        aws.config = machine_config(aws, **services)
        pages = [f"{urls[told[0].name][1]}/metrics"]
        aws.config["load"] = {"what": group, "group": group, "rating": RATING, "pages": pages}
        # A machine calls this address by default.
        where = [] if aws.host == METADATA else ["--metadata", aws.address]
        folder.mkdir(exist_ok=True)
        subprocess.run([*MACHINE, "boot", "--folder", folder, *where], check=True, cwd=ROOT)
        running = {
            name: resources.enter_context(ended(started_by_shell(name, folder / f"{name}.env")))
            for name in services
        }
        pids = " ".join(str(each.pid) for each in running.values())
        # systemd stops units like this.
        lines = ["#!/bin/sh", f"kill -TERM {pids}", f"for pid in {pids}; do"]
        lines += ["while kill -0 $pid 2>/dev/null; do sleep .05; done", "done", ""]
        (folder / "systemctl").write_text("\n".join(lines))
        (folder / "systemctl").chmod(0o755)
        path = {"PATH": f"{folder}:{os.environ['PATH']}"}
        command = [*MACHINE, "stay", *where]
        stay = subprocess.Popen(
            command, env={**os.environ, **path}, cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        resources.enter_context(ended(stay))
        if group != "workers":
            load = [*MACHINE, "load", "--every", "1", *where]
            resources.enter_context(ended(subprocess.Popen(load, cwd=ROOT)))
        # An ended process is gone once somebody has waited for it.
        for each in running.values():
            threading.Thread(target=each.wait, daemon=True).start()
        url, probes = urls[told[0].name]
        yield Machine(aws, running, stay, Target(url, probes))


def secrets_of(kafka: Cluster) -> dict[str, Mapping[str, str]]:
    """Return the store's secrets: of each user of Kafka, and those that a person has added."""
    assert kafka.lock is not None
    variables = {user: kafka.lock.variables(user) for user in RIGHTS}
    users = {
        user: {"username": user, "password": each["HIFI_KAFKA_PASSWORD"]}
        for user, each in variables.items()
    }
    return {**users, **{name: make() for name, make in MADE.items()}}


def certificate_of(kafka: Cluster) -> str:
    assert kafka.lock is not None
    return kafka.lock.variables("gateway")["HIFI_KAFKA_CA_FILE"]


def own(name: str, folder: Path, urls: list[str]) -> dict[str, str]:
    """Return the settings that must differ between the machines, as all of them run on this one."""
    port, metrics = (url.rpartition(":")[2] for url in urls)
    named = {"METRICS_HOST": "127.0.0.1", "METRICS_PORT": metrics, "FOLDER": str(folder / name)}
    match name:
        case "gateway":
            named = {"PORT": port, "METRICS_PORT": metrics}
        case "observe":
            named |= {"CONSOLE_PORT": port, "JARS_CACHE": str(default_cache())}
        case _:
            named |= {"JARS_CACHE": str(default_cache()), "FLOW_FOLDER": str(folder / "flows")}
    return {f"HIFI_{name.upper()}_{variable}": value for variable, value in named.items()}


def started_by_shell(name: str, variables: Path) -> subprocess.Popen[bytes]:
    """Start a service by the unit's command, with the unit's file."""
    command = SERVICES[name].replace(f"{HOME}/.venv/bin", str(Path(sys.executable).parent))
    return subprocess.Popen(["/bin/sh", "-c", f"set -a; . {variables}; exec {command}"], cwd=ROOT)


@contextmanager
def ended(process: subprocess.Popen[P]) -> Iterator[subprocess.Popen[P]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)
        if process.stderr is not None:
            process.stderr.close()


def free_ports(count: int) -> list[int]:
    with ExitStack() as resources:
        sockets = [resources.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def test_a_spot_notice_drains_a_gateway_and_nothing_is_lost_or_refused(
    kafka: Cluster, tmp_path: Path
) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with ExitStack() as resources:
        taken = resources.enter_context(machine(kafka, tmp_path / "a", "gateway"))
        elsewhere = machine(kafka, tmp_path / "b", "gateway", metadata=("127.0.0.1", 0))
        stays = resources.enter_context(elsewhere)
        for each in (taken, stays):
            wait_until(each.is_ready, what="the machine is ready", timeout_s=120)
        proxy = resources.enter_context(keeping_alive(taken.target, stays.target))
        url = f"http://127.0.0.1:{proxy.port}/v1/streams/{stream}/events"
        with sending(url) as client:
            client.wait_for(300)
            drained_s = taken.taken_away()
            client.wait_for(len(client.accepted) + 300)
        print(  # noqa: T201 - the figure
            f"spot notice to drained: {drained_s:.1f} s; {len(client.sent):,} requests,"
            f" {taken.target.requests:,} to the machine that went; latest {client.late_s:.2f} s"
        )
        assert taken.target.requests > 100
        assert (proxy.bad, client.errors) == ([], [])
        assert client.statuses == {200: len(client.sent)}
    assert sorted(stored_ids(kafka.bootstrap_servers, stream)) == sorted(client.accepted)
    figures = [
        float(call["MetricData.member.1.Value"])
        for call in stays.aws.called("PutMetricData")
        if call["MetricData.member.1.MetricName"] == USE
    ]
    # The last machine gets all of the traffic.
    assert max(figures) == pytest.approx(REQUESTS_S / RATING, rel=0.5)


def test_a_spot_notice_ends_workers_and_those_that_come_lose_and_repeat_nothing(
    kafka: Cluster, tmp_path: Path
) -> None:
    with scripted_destination() as shop:
        to = Destination(f"s-{uuid.uuid4().hex}", "shop", shop.url)
        asyncio.run(make(kafka.bootstrap_servers, to))
        with (
            Traffic(kafka.bootstrap_servers, [to.stream]) as traffic,
            machine(kafka, tmp_path / "a", "workers") as taken,
        ):
            wait_until(taken.is_ready, what="the machine is ready", timeout_s=180)
            wait_until(lambda: len(shop.accepted_ids) > 100, what="events have arrived")
            drained_s = taken.taken_away()
        with machine(kafka, tmp_path / "b", "workers") as comes:
            wait_until(comes.is_ready, what="the next machine is ready", timeout_s=180)
            wait_until(
                lambda: set(shop.accepted_ids) >= set(traffic.ids), what="all events have arrived"
            )
            # By then, a late copy would have arrived.
            time.sleep(2)
        print(  # noqa: T201 - the figure
            f"workers: {drained_s:.1f} s from the notice to the end; {len(traffic.ids):,} events"
        )
        assert set(shop.accepted_ids) == set(traffic.ids)
        assert set(shop.accepted_ids.values()) == {1}


def test_an_observer_is_ready_after_its_boot_and_ends_in_good_time(
    kafka: Cluster, tmp_path: Path
) -> None:
    new_stream(kafka.bootstrap_servers)
    with machine(kafka, tmp_path / "observe", "observe") as booted:
        wait_until(booted.is_ready, what="the machine is ready", timeout_s=180)
        drained_s = booted.taken_away()
    print(f"observe: {drained_s:.1f} s from the notice to the end")  # noqa: T201 - the figure
