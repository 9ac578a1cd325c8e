"""The two images: their size and users, README's first steps in them, and a killed engine."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import yaml

from deploy.local.cluster import Cluster
from shared.runtime.java.cache_folder import default_cache
from tests.support.deploy.built_images import BuiltImages
from tests.support.deploy.stack_fixtures import PATIENCE_S, wait_until
from tests.support.servers.own_network import own_network
from tests.tidy.sources import ROOT

# The images take minutes to build.
pytestmark = pytest.mark.timeout(900)

GATEWAY_BYTES_MAX = 250 * 10**6
ROLES = ("gateway", "delivery", "retrier", "pipelines", "observe")
EVENTS = 10_000
ONE_COPY = {"HIFI_KAFKA_REPLICAS": "1", "HIFI_KAFKA_IN_SYNC_MIN": "1"}


class HifiInContainers:
    """All of Hifi as compose.yaml has it, in containers on one network with only this machine."""

    def __init__(self, images: BuiltImages, kafka: str, folder: Path, resources: ExitStack) -> None:
        self._images, self._kafka, self._resources = images, kafka, resources
        self._folder = folder
        self._services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
        self._containers = {image: images.container(image) for image in ("gateway", "engine")}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a service; wait until the image's health check says that it is ready."""
        image = "gateway" if name in {"gateway", "sample"} else "engine"
        service = self._services[name]
        words = self._images.read_only(
            self._containers[image], *service["command"], env=self._variables(name)
        )
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        self.running[name] = process
        self._resources.callback(self.kill, name)

    def wait_until_ready(self, name: str, port: int) -> None:
        def is_ready() -> bool:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
                return True
            return False

        wait_until(is_ready, what=f"{name} is ready", timeout_s=3 * PATIENCE_S)

    def kill(self, name: str) -> None:
        """Kill every process of a service's container at once."""
        process = self.running[name]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)

    def hifi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line in a container of the gateway's image."""
        env = {"HIFI_GATEWAY": "http://127.0.0.1:8080", "HIFI_KAFKA": self._kafka, **ONE_COPY}
        words = self._images.read_only(self._containers["gateway"], "hifi", *arguments, env=env)
        return subprocess.run(words, capture_output=True, check=False, text=True, timeout=120)

    def _variables(self, name: str) -> dict[str, str]:
        """Return the variables of compose.yaml with this Kafka and loopback for other services."""
        given = self._services[name].get("environment", {})
        flat = {**(given.get("<<") or {}), **given}
        names = re.compile(r"\b(gateway|observe|sample)(?=:\d)")
        return {
            variable: names.sub("127.0.0.1", str(value).replace("kafka:9092", self._kafka))
            for variable, value in flat.items()
        }


@pytest.fixture
def hifi(images: BuiltImages, tmp_path: Path) -> Iterator[HifiInContainers]:
    with own_network(), ExitStack() as resources:
        kafka = Cluster(folder=tmp_path / "kafka", cache=default_cache())
        resources.enter_context(kafka)
        yield HifiInContainers(images, kafka.bootstrap_servers, tmp_path, resources)


def count() -> int:
    with urllib.request.urlopen("http://127.0.0.1:8090/events", timeout=5) as answer:
        return int(json.loads(answer.read())["count"])


def books(hifi: HifiInContainers) -> dict[str, int]:
    said = json.loads(hifi.hifi("status", "--json").stdout)
    (one,) = [each for each in said["books"] if each["destination"] == "sample"]
    return {name: one[name] for name in ("acked", "delivered", "dead", "unaccounted", "waiting")}


def test_the_gateways_image_is_small_and_has_no_java(images: BuiltImages) -> None:
    root = images.root_of(images.container("gateway"))
    assert images.size_bytes("gateway") <= GATEWAY_BYTES_MAX
    assert not list(root.rglob("java-runtime"))
    assert not list(root.rglob("bin/java"))


@pytest.mark.parametrize("image", ["gateway", "engine"])
def test_an_image_runs_as_its_user_and_lists_licences(images: BuiltImages, image: str) -> None:
    container = images.container(image)
    said = subprocess.run(
        images.read_only(container, "id", "-un"), capture_output=True, check=True, text=True
    )
    assert said.stdout.strip() == "hifi"
    notice = (images.root_of(container) / "opt/hifi/NOTICE").read_text()
    assert "aiokafka" in notice
    assert ("pyspark" in notice) is (image == "engine")


def test_the_gateways_image_has_what_an_aws_identity_needs(images: BuiltImages) -> None:
    services = ("signin", "sso", "sso-oidc", "sts")
    script = "import botocore.session as b; s = b.get_session()\n" + "\n".join(
        f"s.create_client('{service}', region_name='eu-west-1')" for service in services
    )
    words = images.read_only(images.container("gateway"), "python", "-c", script)
    ended = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_a_user_without_a_name_is_told_in_one_sentence(images: BuiltImages) -> None:
    container = images.container("engine")
    words = images.read_only(container, "hifi-delivery", user="54321:54321")
    ended = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("hifi delivery: The user 54321 has no name")


def test_three_minutes_and_a_killed_engine(hifi: HifiInContainers) -> None:
    assert hifi.hifi("topics").returncode == 0
    ports = {"gateway": 8081, "delivery": 8082, "retrier": 8083, "observe": 8084, "pipelines": 8085}
    for name in (*ROLES, "sample"):
        hifi.start(name)
    for name, port in ports.items():
        hifi.wait_until_ready(name, port)
    for words in (
        ("streams", "put", "demo"),
        ("destinations", "put", "demo", "sample", "http://127.0.0.1:8090/"),
    ):
        ended = hifi.hifi(*words)
        assert ended.returncode == 0, ended.stderr
    sent = hifi.hifi("send", "demo", "--count", str(EVENTS))
    assert f"{EVENTS:,} accepted" in sent.stdout + sent.stderr
    wait_until(lambda: count() > 0, what="the first events arrived", timeout_s=PATIENCE_S)
    hifi.kill("delivery")
    more = hifi.hifi("send", "demo", "--count", str(EVENTS))
    assert f"{EVENTS:,} accepted" in more.stdout + more.stderr
    hifi.start("delivery")
    wait_until(
        lambda: books(hifi)["delivered"] == 2 * EVENTS, what="all arrived", timeout_s=3 * PATIENCE_S
    )
    bad = '{"id":"bad","answer_always":400}'
    assert "2 accepted" in hifi.hifi("send", "demo", bad, '{"id":"fine"}').stdout
    wait_until(lambda: books(hifi)["dead"] == 1, what="the bad one is dead", timeout_s=PATIENCE_S)
    told = books(hifi)
    assert (told["acked"], told["unaccounted"]) == (2 * EVENTS + 2, 0)
    assert "status_400" in hifi.hifi("dead", "list", "--stream", "demo").stdout
