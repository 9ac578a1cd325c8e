"""The built wheel on an empty machine: README's first commands, other users, seconds and MB."""

import re
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

import pytest

from deploy.local.ports import pick_free
from deploy.local.stack_settings import PORTS
from shared.runtime.java.jars import read_lock
from tests.support.deploy.empty_machine import UV, EmptyMachine, Visitor
from tests.support.deploy.shown_commands import README, Terminal, run_page, shown
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.timeout(900)

READER, NOBODY, NAMELESS = 10_001, 65_534, 54_321
EXTRAS = ("cli", "gateway", "delivery", "retrier", "pipelines", "observe", "local")
# README's commands for a machine without a checkout.
INSTALL, UP = (
    re.findall(rf"^({words}.*?)(?:  +#.*)?$", (ROOT / "README.md").read_text(), re.MULTILINE)[0]
    for words in ("uv tool install ", "hifi up")
)
CACHE = "/srv/reader/.cache/hifi"
USERS = {
    "as nobody": Visitor(NOBODY, "/nonexistent", {"HIFI_CACHE": CACHE}),
    "on a read-only root": Visitor(READER, "/srv/reader", {}, is_read_only=True),
}


@pytest.fixture(scope="module")
def seconds() -> dict[str, float]:
    """Return how long each step took, which the last test prints."""
    return {}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, seconds: dict[str, float]) -> EmptyMachine:
    """Install the wheel with README's command, as a user with a fixed number."""
    empty = EmptyMachine(tmp_path_factory.mktemp("machine"))
    empty.add_user("reader", READER)
    dist = empty.root / "dist"
    subprocess.run([UV, "build", "--wheel", "--quiet", "--out-dir", dist, ROOT], check=True)
    (wheel,) = dist.glob("*.whl")
    here = INSTALL.replace('[local]"', f'[local] @ file:///dist/{wheel.name}"')
    assert here != INSTALL
    began_s = time.monotonic()
    installed = empty.run(Visitor(READER, "/srv/reader", {}), "sh", "-c", here)
    assert installed.returncode == 0, installed.stderr
    seconds[INSTALL] = time.monotonic() - began_s
    return empty


def of_this_test(visitor: Visitor) -> Visitor:
    """Give the visitor ports and a data folder of its own, which all its commands use."""
    ports = dict(zip(PORTS, pick_free(len(PORTS)), strict=True))
    environ = {
        **{f"HIFI_UP_{name.upper()}": str(port) for name, port in ports.items()},
        "HIFI_GATEWAY": f"http://127.0.0.1:{ports['gateway_port']}",
        "HIFI_KAFKA": f"127.0.0.1:{ports['kafka_port']}",
        "HIFI_CONSOLE": f"http://127.0.0.1:{ports['console_port']}",
        "HIFI_UP_DATA": f"/tmp/data-{ports['kafka_port']}",
        **visitor.environ,
    }
    return Visitor(visitor.number, visitor.home, environ, is_read_only=visitor.is_read_only)


def test_readmes_first_commands_work(
    machine: EmptyMachine, seconds: dict[str, float], tmp_path: Path
) -> None:
    reader = of_this_test(Visitor(READER, "/srv/reader", {}))
    names = {
        number: reader.environ[f"HIFI_UP_{name}_PORT"]
        for number, name in (("8080", "GATEWAY"), ("8090", "SAMPLE"))
    }
    commands = shown(README, names)
    assert {each.command.split()[0] for each in commands} == {"curl", "hifi"}
    with machine.up(reader, UP) as took_s:
        seconds[f"{UP}, the first time"] = took_s
        began_s = time.monotonic()
        run_page(Terminal(tmp_path, {}, machine.words(reader, "bash", "--norc")), commands)
        seconds["the commands of Three minutes"] = time.monotonic() - began_s


@pytest.mark.parametrize("how", USERS)
def test_other_users_can_run_it(machine: EmptyMachine, seconds: dict[str, float], how: str) -> None:
    user = of_this_test(USERS[how])
    with machine.up(user, UP) as took_s:
        seconds[f"{UP}, {how}"] = took_s
        sent = machine.run(user, "hifi", "send", "demo", '{"id":"1"}')
        assert "1 accepted" in sent.stdout + sent.stderr


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        (Visitor(NAMELESS, "/tmp", {"HIFI_CACHE": CACHE}), "The user 54321 has no name"),
        (Visitor(NOBODY, "/nonexistent", {}), "Jars cannot be kept in /nonexistent"),
    ],
)
def test_others_are_told_in_one_sentence(
    machine: EmptyMachine, user: Visitor, sentence: str
) -> None:
    ended = machine.run(of_this_test(user), *UP.split())
    assert ended.returncode == 1
    (line,) = (line for line in ended.stderr.splitlines() if "checking" not in line)
    assert line.startswith(f"hifi: {sentence}")


def test_a_table_has_seconds_and_megabytes(
    machine: EmptyMachine, seconds: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = bytes_of_packages(machine)
    rows = [f"{step:70} {took:8.0f} s" for step, took in seconds.items()]
    for extra in EXTRAS:
        size = sum(sizes.get(name, 0) for name in {"hifi-streams", *locked_names(extra)})
        rows.append(f"{f'hifi-streams[{extra}]':70} {size / 1e6:8.0f} MB")
    for jar_set, jars in read_lock().items():
        size = sum(jar.size_bytes for jar in jars)
        rows.append(f"{f'jars of the set {jar_set}':70} {size / 1e6:8.0f} MB")
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *rows, ""]))
    assert len(seconds) == 3 + len(USERS)


def locked_names(extra: str) -> set[str]:
    """Return the packages that an extra installs."""
    wanted = ("--frozen", "--extra", extra, "--no-default-groups", "--no-emit-project")
    bare = ("--no-hashes", "--no-annotate", "--no-header", "--quiet")
    exported = subprocess.run(
        [UV, "export", *wanted, *bare], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return set(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==", exported.stdout, re.MULTILINE))


def bytes_of_packages(machine: EmptyMachine) -> dict[str, int]:
    """Return the bytes of the files that each installed package lists."""
    tool = machine.root / "srv/reader/.local/share/uv/tools/hifi-streams"
    (site,) = tool.glob("lib/python*/site-packages")
    return {
        re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): sum(
            Path(str(file.locate())).stat().st_size for file in each.files or ()
        )
        for each in distributions(path=[str(site)])
    }
