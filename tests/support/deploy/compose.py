"""Runs the services of compose.yaml as processes, each with its own and its image's variables.

They run in one network that has only this machine, and find each other by their names there.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import yaml

from shared.runtime.java.jars import ensure_jars
from shared.runtime.java.java import find_java
from tests.support.suite.programs import program
from tests.tidy.sources import ROOT

DOCKERFILE = ROOT / "deploy" / "images" / "Dockerfile"
_SCRIPTS = Path(sys.executable).parent
_METRICS_PORTS = ("GATEWAY", "DELIVERY", "RETRIER", "PIPELINES", "OBSERVE")
# Binds the names of all services to loopback, and becomes the service.
_WITH_NAMES = 'mount --bind "$0" /etc/hosts && exec "$@"'
_ENDS_WITHIN_S = 60.0


def compose() -> dict[str, Any]:
    """Read compose.yaml as compose does, with its variables at their defaults."""
    text = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", (ROOT / "compose.yaml").read_text())
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def image_variables(image: str) -> dict[str, str]:
    """Return the variables of a target of the Dockerfile."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    target = re.split(rf"^FROM \S+ AS {image}$", text, flags=re.MULTILINE)[1]
    (line,) = re.findall(r"^ENV (.*)$", target.partition("\nFROM ")[0], re.MULTILINE)
    return dict(word.split("=", 1) for word in line.split())


def image_of(service: Mapping[str, Any]) -> str:
    """Return the target that makes a service's image; empty for others' images."""
    found = re.match(r"hifi-(\w+):", service["image"])
    return found[1] if found else ""


class ComposeProcesses:
    """The processes of the services, in folders of their own."""

    def __init__(self, folder: Path, jars_cache: Path, resources: ExitStack) -> None:
        self.folder = folder
        self._cache = jars_cache
        self._resources = resources
        self._compose = compose()
        self._hosts = folder / "hosts"
        folder.mkdir(parents=True, exist_ok=True)
        names = " ".join(["localhost", *self._compose["services"]])
        self._hosts.write_text(f"127.0.0.1 {names}\n")

    def start(self, name: str, command: list[str] | None = None) -> subprocess.Popen[bytes]:
        """Start a service; kill its whole session at the end."""
        words = self._as_here(command or self._compose["services"][name]["command"])
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._named(words),
                cwd=self._own(name),
                env=self.env(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._resources.callback(_end, process)
        return process

    def start_kafka(self) -> None:
        """Start a broker of the jars with the settings that the image takes from its variables."""
        variables = self._compose["services"]["kafka"]["environment"]
        properties = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): value
            for name, value in variables.items()
            if name.startswith("KAFKA_")
        }
        properties["log.dirs"] = str(self._own("kafka") / "data")
        file = self._own("kafka") / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        jars = os.pathsep.join(map(str, ensure_jars("broker", cache=self._cache)))
        java = [str(find_java().path), "-Xmx512m", "-cp", jars]
        form = ["kafka.tools.StorageTool", "format", "-t", variables["CLUSTER_ID"]]
        made = subprocess.run([*java, *form, "-c", str(file)], capture_output=True, check=False)
        assert made.returncode == 0, made.stderr.decode()
        self.start("kafka", [*java, "kafka.Kafka", str(file)])

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a service's place, until it ends."""
        words = self._as_here(list(command) or self._compose["services"][name]["command"])
        return subprocess.run(
            self._named(words),
            cwd=self._own(name),
            env=self.env(name),
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )

    def is_healthy(self, name: str) -> bool:
        """Run the image's health check, as if the other services were in other containers."""
        others = {
            f"HIFI_{other}_METRICS_PORT": "1" for other in _METRICS_PORTS if other != name.upper()
        }
        (words,) = re.findall(
            rf"AS {image_of(self._compose['services'][name])}$.*?^HEALTHCHECK .*? CMD \[(.*?)\]",
            DOCKERFILE.read_text(),
            re.MULTILINE | re.DOTALL,
        )
        check = re.findall(r'"(.*?)"', words)
        ended = subprocess.run(
            self._named(self._as_here(check)),
            env=self.env(name) | others,
            capture_output=True,
            check=False,
            timeout=30,
        )
        return ended.returncode == 0 and ended.stdout.startswith(name.encode())

    def env(self, name: str) -> dict[str, str]:
        """Return a service's variables, with folders of this test instead of the image's."""
        service = self._compose["services"][name]
        inside = image_variables(image) if (image := image_of(service)) else {}
        variables = {**inside, **service.get("environment", {})}
        here = {
            variable: str(value)
            .replace("/var/lib/hifi", str(self._own(name)))
            .replace("/opt/hifi/cache", str(self._cache))
            for variable, value in variables.items()
        }
        return here | {"PATH": f"{_SCRIPTS}:{os.environ['PATH']}", "HOME": str(self._own(name))}

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _own(self, name: str) -> Path:
        own = self.folder / name
        own.mkdir(parents=True, exist_ok=True)
        return own

    def _as_here(self, command: list[str]) -> list[str]:
        """Return a command with the programs and the mounted files of this checkout."""
        mounts = {
            inside: ROOT / there
            for service in self._compose["services"].values()
            for there, inside, *_ in (each.split(":") for each in service.get("volumes", ()))
            if there.startswith("./")
        }
        program, *arguments = command
        installed = _SCRIPTS / program
        first = str(installed) if installed.exists() else program
        return [first, *(str(mounts.get(word, word)) for word in arguments)]

    def _named(self, words: list[str]) -> list[str]:
        shell = ("sh", "-c", _WITH_NAMES, str(self._hosts))
        return [program("unshare"), "--mount", *shell, *words]


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_ENDS_WITHIN_S)
