"""One tenant does its worst, while another one's events, pipelines, writes and pages are measured.

`make test-long ARGS="-k worst_neighbour"` prints a table; `-k "worst_neighbour and memory"` runs
one kind. The figures are also in build/worst-neighbour.txt and .json.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from deploy.local.stack import Stack
from tests.support.deploy.stack_fixtures import QUICK_INTERVALS, stack_settings
from tests.support.neighbours.figures import Round, Verdict, table, verdicts
from tests.support.neighbours.kinds import ALL, CONTROLS
from tests.support.neighbours.neighbour import Neighbour, neighbour
from tests.support.neighbours.processes import Processes, watched
from tests.support.neighbours.site import QUOTAS, Site, make_tenant, site_of
from tests.support.neighbours.worst_process import WorstProcess, be_nice, worst_process
from tests.support.neighbours.worst_tenant import unproven
from tests.support.pipelines.installed_functions import install

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

# How long a worst tenant takes to begin.
_BEGUN_S = 0.5
_BUILD = Path("build")
_NICE = -10


@dataclass
class Scene:
    """A Hifi, its neighbour, and the findings so far."""

    stack: Stack
    neighbour: Neighbour
    processes: Processes
    rounds: int
    operator_key: str
    # The neighbour's events that never arrived.
    missing: dict[str, int] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    found: list[Verdict] = field(default_factory=list)
    happened: dict[str, dict[str, int]] = field(default_factory=dict)

    def site(self, tenant: str) -> Site:
        key = make_tenant(self.stack.gateway, self.operator_key, tenant, QUOTAS)
        return site_of(self.stack, tenant, key)

    def round(self, worst: WorstProcess, window_s: float) -> Round:
        """Measure before and during; return both once the neighbour has recovered."""
        self.missing.update(self.neighbour.waited_for())
        begun_s = time.monotonic()
        time.sleep(window_s)
        worst.go()
        during_s = time.monotonic() + _BEGUN_S
        time.sleep(_BEGUN_S + window_s)
        self.counted = worst.stop()
        self.missing.update(self.neighbour.waited_for())
        before = self.neighbour.window(begun_s, begun_s + window_s)
        return Round(before, self.neighbour.window(during_s, during_s + window_s))

    def write(self) -> None:
        _BUILD.mkdir(exist_ok=True)
        (_BUILD / "worst-neighbour.txt").write_text(table(self.found) + "\n")
        told = {"lines": [one.to_json() for one in self.found], "happened": self.happened}
        (_BUILD / "worst-neighbour.json").write_text(json.dumps(told, indent=1) + "\n")


@pytest.fixture(scope="module")
def scene(
    tmp_path_factory: pytest.TempPathFactory, jars_cache: Path, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """Start a Hifi that requires keys, at the pace of production."""
    settings = stack_settings(tmp_path_factory.mktemp("hifi"), jars_cache)
    packages = install(tmp_path_factory.mktemp("packages"))
    keys = {"HIFI_GATEWAY_AUTH": "keys", "HIFI_OBSERVE_CONSOLE_AUTH": "keys"}
    keys["PYTHONPATH"] = str(packages)
    environ = {**os.environ, **QUICK_INTERVALS, **keys}
    stack = Stack(
        replace(settings, time_scale=1.0, is_nice=True), environ=environ, say=lambda _: None
    )
    stack.start(lambda _: None)
    try:
        operator_key = (settings.folder / "operator-key").read_text().strip()
        key = make_tenant(stack.gateway, operator_key, "steady", {})
        # The measuring threads are this one and those that it starts. They need little processor
        # time, and must not wait for it.
        be_nice(_NICE)
        site = site_of(stack, "steady", key)
        with neighbour(site, stack.bootstrap_servers) as living, watched(stack) as seen:
            rounds = request.config.getoption("--rounds")
            made = Scene(stack, living, seen, rounds, operator_key)
            yield made
            say(request, table(made.found))
    finally:
        be_nice(0)
        stack.stop()


def say(request: pytest.FixtureRequest, text: str) -> None:
    """Print a text at once, even where pytest captures the output of tests."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{text}\n")
        sys.stdout.flush()


@pytest.mark.parametrize("kind", ALL)
def test_a_worst_neighbour_is_hardly_noticed(
    kind: str, scene: Scene, request: pytest.FixtureRequest
) -> None:
    worst = ALL[kind]
    gone = len(scene.processes.gone)
    ended = scene.processes.ended.copy()
    scene.missing.clear()
    rounds, happened = list[Round](), Counter[str]()
    # Hifi searches for an event that ends executors until the event is found, so each round has its
    # own tenant.
    tenants = scene.rounds if worst.ends_executors else 1
    for nth in range(tenants):
        with worst_process(worst, scene.site(f"worst-{kind}-{nth}")) as misbehaving:
            each = [
                scene.round(misbehaving, worst.window_s) for _ in range(scene.rounds // tenants)
            ]
        rounds += each
        happened += scene.counted
    happened["executors ended"] = (scene.processes.ended - ended)["executor"]
    lines = verdicts(worst.says, rounds, has_ended_executors=worst.ends_executors)
    scene.found += lines
    scene.happened[kind] = dict(happened)
    scene.write()
    say(request, f"{table(lines)}\n{dict(happened)}")
    assert scene.processes.gone[gone:] == [], "a process of Hifi has ended"
    assert scene.missing == {}
    assert unproven(worst, happened) == []
    assert kind in CONTROLS or [line for line in lines if not line.is_kept] == []
