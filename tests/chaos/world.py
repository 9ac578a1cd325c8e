"""Runs all of Hifi for a chaos run, and notes deaths of processes and their memory."""

import json
import os
import re
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploy.local.children import Child, session_of
from deploy.local.keeper import Keeper
from deploy.local.ports import is_free
from deploy.local.services import how_it_ended
from deploy.local.stack import Stack
from deploy.local.stack_settings import StackSettings
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.jars import ensure_jars
from tests.chaos import gateway_workers
from tests.chaos.actions import Brokers
from tests.chaos.gateway_workers import WORKERS
from tests.chaos.recount import Death
from tests.support.deploy.stack_fixtures import QUICK_INTERVALS, stack_settings, wait_until
from tests.support.gateway.gateway_process import ACK_DEADLINE_S, QUEUE_DEADLINE_S
from tests.support.kafka.broker_links import LinkedCluster, Links
from tests.support.pipelines.installed_functions import install

# With this factor, the 30 s tier lasts 0.06 s, the last tier a minute, and the deadline of 72 h
# nine minutes.
TIME_SCALE = 0.002
# Room for a run's data there, and little enough to be filled in a moment.
_DISKS_MB = {"retrier": 192}
_WEIGH_EVERY = 7
# The services whose clocks may differ from all others.
_SKEWED = ("delivery", "retrier")
_PATIENCE_S = 180.0
# Maximum resident memory by kind of process. Java: a heap of 512 MB and as much again for classes,
# threads and buffers (seen: 320 and 570); Python: libraries, and data in flight (seen: 125).
BOUNDS_MB = {"Kafka": 800, "Spark's Java": 1_000, "Python": 300}
# The form in which a process of Hifi says why it cannot continue.
_SENTENCE = re.compile(r"hifi(?:[ -][a-z]+)?: .+")
# The supervisor's line about a gateway worker; one that is killed ends with -9.
_WORKER_ENDED = re.compile(r"(gateway worker \d+) ended \((-?\d+)\)")
_KILLED = "-9"
# A missing broker or disk may cause deaths for this long after its return.
_EXCUSED_S = 60.0


@dataclass(kw_only=True)
class World(Keeper):
    """The stack, and everything else that a run may look at or change."""

    clock: Path
    # Whether a disk can be filled on this machine: it takes a file system of its own.
    has_disks: bool
    deaths: list[Death] = field(default_factory=list)
    peaks_mb: dict[str, int] = field(default_factory=dict)
    # Until when the absence of Kafka or a disk excuses an end (monotonic).
    _excused_until_s: float = 0.0

    @property
    def kafka(self) -> str:
        return self.stack.bootstrap_servers

    @property
    def links(self) -> Links | None:
        """Return the links between brokers, if they can be cut here."""
        cluster = self.stack.cluster
        return cluster.links if isinstance(cluster, LinkedCluster) else None

    @property
    def folder(self) -> Path:
        return self.stack.settings.folder

    @property
    def operator_key(self) -> str:
        return (self.folder / "operator-key").read_text().strip()

    def excuse(self, *, for_s: float = 0.0) -> None:
        """Excuse deaths while something that processes need is away for `for_s`."""
        until_s = time.monotonic() + for_s + _EXCUSED_S
        self._excused_until_s = max(self._excused_until_s, until_s)

    def wait_until_well(self) -> None:
        """Wait until all processes run and report that they are well, after any fault."""
        wait_until(
            lambda: not self.unwell(),
            what=lambda: f"all processes are well; unwell: {', '.join(self.unwell())}",
            timeout_s=_PATIENCE_S,
            look_s=0.5,
        )

    def step_clock(self, seconds: float, service: str = "") -> None:
        """Step the clock of all processes, or only of one service and its workers."""
        with _clock_of(self.clock, service).open("r+b") as file:
            file.write(struct.pack("<q", round(seconds * 1e9)))

    def reads_clock_of(self, service: str) -> int:
        """Return how many processes of a service read that service's own clock."""
        name = str(_clock_of(self.clock, service))
        maps = (Path(f"/proc/{pid}/maps") for pid in session_of(self.children[service].pid))
        return sum(name in _read(path) for path in maps)

    def all_deaths(self) -> list[Death]:
        """Return the deaths of processes, including those of the gateway's workers."""
        said = (self.folder / "logs" / "gateway.log").read_text()
        workers = [
            Death(name, f"ended with exit code {code}", "", is_excused=False)
            for name, code in _WORKER_ENDED.findall(said)
            if code != _KILLED
        ]
        return [*self.deaths, *workers]

    def errors(self) -> dict[str, int]:
        """Count the errors that processes have logged: the first place to look."""
        found: Counter[str] = Counter()
        for path in (self.folder / "logs").glob("*.log"):
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith("{") and '"level": "error"' in line:
                    found[f"{path.stem}: {json.loads(line)['event']}"] += 1
        return dict(found)

    def note_death(self, name: str, child: Child) -> None:
        said = [line for line in child.tail_log(40) if _SENTENCE.match(line)]
        is_excused = time.monotonic() < self._excused_until_s
        how = how_it_ended(child.exit_code)
        self.deaths.append(Death(name, how, said[-1] if said else "", is_excused))

    def at_turn(self, turn: int) -> None:
        if turn % _WEIGH_EVERY == 0:
            self._weigh()

    def _weigh(self) -> None:
        for name, child in self.children.items():
            for pid in session_of(child.pid):
                kind = _kind_of(name, pid)
                peak_mb = _peak_mb(pid)
                if kind and peak_mb > self.peaks_mb.get(kind, 0):
                    self.peaks_mb[kind] = peak_mb


def _clock_of(clock: Path, service: str) -> Path:
    return clock.with_name(f"{clock.name}-{service}") if service else clock


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _kind_of(name: str, pid: int) -> str:
    try:
        program = Path(f"/proc/{pid}/exe").resolve().name
    except OSError:
        return ""
    if program != "java":
        return "Python"
    return "Kafka" if name.startswith("broker") else "Spark's Java"


def _peak_mb(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", _read(Path(f"/proc/{pid}/status")))
    return int(found[1]) // 1_000 if found else 0


@contextmanager
def open_world(folder: Path, *, brokers: Brokers) -> Iterator[World]:
    """Run all of Hifi in a folder of its own, with keys required, and a disk for the retrier."""
    cache = default_cache()
    for jars in ("broker", "spark"):
        ensure_jars(jars, cache=cache)
    clock = folder / "clock"
    folder.mkdir(parents=True, exist_ok=True)
    for service in ("", *_SKEWED):
        _clock_of(clock, service).write_bytes(bytes(8))
    settings = _settings(folder, cache, brokers)
    with ExitStack() as resources:
        has_disks = all(
            _mounted(folder / name, size_mb, resources) for name, size_mb in _DISKS_MB.items()
        )
        stepped = Path(__file__).parent / "stepped_clock"
        paths = stepped, install(folder / "packages")
        environ = {
            **os.environ,
            **QUICK_INTERVALS,
            "HIFI_GATEWAY_AUTH": "keys",
            "HIFI_GATEWAY_ACK_DEADLINE_S": str(ACK_DEADLINE_S),
            "HIFI_GATEWAY_QUEUE_DEADLINE_S": str(QUEUE_DEADLINE_S),
            "CHAOS_CLOCK_FILE": str(clock),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        }
        stack = Stack(settings, environ=environ, say=lambda _: None)
        stack.services[0].module = gateway_workers.__name__
        if brokers > 1:
            stack.cluster = LinkedCluster(
                folder=folder / "kafka", cache=cache, brokers=brokers, ports=settings.kafka_ports
            )
        stack.start(lambda _: None)
        world = World(stack=stack, clock=clock, has_disks=has_disks)
        watch = threading.Thread(target=world.watch, name="watch", daemon=True)
        watch.start()
        try:
            yield world
        finally:
            world.stop_watching()
            watch.join(30)
            stack.stop()


def _settings(folder: Path, cache: Path, brokers: Brokers) -> StackSettings:
    """Return the settings of tests, with free ports for each broker and each worker's metrics."""
    while True:
        drawn = replace(stack_settings(folder, cache), brokers=brokers, time_scale=TIME_SCALE)
        ports = [port for _, port in drawn.ports()]
        ports += [drawn.gateway_metrics_port + nth for nth in range(1, WORKERS)]
        if len(set(ports)) == len(ports) and all(is_free(port) for port in ports):
            return drawn


def _mounted(folder: Path, size_mb: int, resources: ExitStack) -> bool:
    """Give a folder a file system of its own, if this machine allows it."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return False
    # Lazily: a log that is still open must not keep it mounted.
    resources.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
    return True
