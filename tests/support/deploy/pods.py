"""Runs the chart's roles as processes, and treats them as Kubernetes treats pods.

A process has the chart's command and variables. Its probes decide whether it gets requests and
whether it is killed, and it has the chart's grace period to end.
"""

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deploy.local.children import Child
from deploy.local.ports import pick_free
from tests.support.deploy.chart import values, variables
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.servers.balancer import Backend

EXAMPLE = "try"
_READ = values(EXAMPLE)
GRACE_S: int = _READ["terminationGracePeriodSeconds"]
PROBES: dict[str, dict[str, int]] = _READ["probes"]
_SCRIPTS = Path(sys.executable).parent


@dataclass
class Endpoint(Backend):
    """A pod behind a balancer that learns of its state from the chart's readiness probe only."""

    _refusals: int = 0
    _due_s: float = 0.0

    async def check(self, client: httpx.AsyncClient) -> None:
        if time.monotonic() < self._due_s:
            return
        probe = PROBES["readiness"]
        self._due_s = time.monotonic() + probe["periodSeconds"]
        was_ready = self.is_ready
        await super().check(client)
        self._refusals = 0 if self.is_ready else self._refusals + 1
        self.is_ready |= was_ready and self._refusals < probe["failureThreshold"]


@dataclass
class Pod:
    """A process of a role, on ports and in a folder of its own."""

    role: str
    servers: str
    folder: Path
    # Settings of the test instead of the chart's.
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port, self.metrics_port = pick_free(2)
        prefix = f"HIFI_{self.role.upper()}"
        own = {
            f"{prefix}_BOOTSTRAP_SERVERS": self.servers,
            f"{prefix}_METRICS_PORT": str(self.metrics_port),
        }
        if self.role == "gateway":
            own |= {f"{prefix}_PORT": str(self.port)}
            own |= {f"{prefix}_TABLES_FOLDER": str(self.folder / "tables")}
        else:
            own |= {f"{prefix}_FOLDER": str(self.folder)}
        self.child = Child(
            self.folder.name,
            [_SCRIPTS / f"hifi-{self.role}"],
            log=self.folder.with_suffix(".log"),
            env={**os.environ, **variables(self.role, EXAMPLE), **own, **self.env},
        )
        self._is_deleted = threading.Event()
        self._kubelet = threading.Thread(target=self._watch, daemon=True)
        self._kubelet.start()

    @property
    def probes(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}"

    def wait_until_ready(self, timeout_s: float) -> None:
        wait_until(
            lambda: self._answers("/readyz", PROBES["readiness"]["timeoutSeconds"]),
            what=f"{self.child.name} is ready",
            timeout_s=timeout_s,
        )

    def delete(self) -> float:
        """Send SIGTERM; return how long the process took to end by itself, with exit code 0."""
        self._is_deleted.set()
        began_s = time.monotonic()
        assert self.child.stop(timeout_s=GRACE_S), f"{self.child.name} had to be killed"
        assert self.child.exit_code == 0
        return time.monotonic() - began_s

    def kill(self) -> None:
        self._is_deleted.set()
        self.child.kill()
        self._kubelet.join(timeout=60)

    def _watch(self) -> None:
        """Kill the process if its startup or its liveness probe fails too often in a row."""
        failures, name = 0, "startup"
        while not self._is_deleted.wait(PROBES[name]["periodSeconds"]):
            if self._answers("/livez", PROBES[name]["timeoutSeconds"]):
                failures, name = 0, "liveness"
                continue
            failures += 1
            if failures == PROBES[name]["failureThreshold"]:
                self.child.kill()
                return

    def _answers(self, path: str, timeout_s: float) -> bool:
        try:
            return (
                httpx.get(f"{self.probes}{path}", timeout=timeout_s).status_code == httpx.codes.OK
            )
        except httpx.TransportError:
            return False
