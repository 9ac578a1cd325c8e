"""The wheel holds only our packages, and works where there is no source tree."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.suite.programs import program
from tests.tidy import sources

pytestmark = pytest.mark.integration

UV = sources.ROOT / ".tools" / "bin" / "uv"
SERVICES = ("gateway", "delivery", "retrier", "pipelines", "observe")
# Tests of the core that need no more than the packages themselves.
CORE_TESTS = ("tests/unit/event", "tests/unit/retry")


def run(*command: str | Path, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program away from the sources, with none of our variables in its environment."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HIFI_", "PYTHON", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**inherited, **env},
        capture_output=True,
        check=False,
        text=True,
        timeout=240,
    )


def done(*command: str | Path, folder: Path) -> str:
    ended = run(*command, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def uv(*arguments: str | Path, folder: Path, **env: str) -> None:
    """Run uv from its cache; let it download missing packages."""
    if run(UV, *arguments, "--quiet", "--offline", folder=folder, **env).returncode != 0:
        ended = run(UV, *arguments, "--quiet", folder=folder, **env)
        assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--wheel", "--out-dir", folder, sources.ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the wheel, its requirements, and those of its tests."""
    folder = tmp_path_factory.mktemp("empty")
    locked = ("--frozen", "--extra", "local", "--no-install-project", "--project", sources.ROOT)
    environment = {"UV_PROJECT_ENVIRONMENT": str(folder / "venv")}
    uv("sync", *locked, "--python", sys.executable, folder=folder, **environment)
    python = folder / "venv" / "bin" / "python"
    uv("pip", "install", "--python", python, "--no-deps", wheel, folder=folder)
    return folder


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the scripts of an environment that has the wheel without any extra."""
    return _with_extra(wheel, "", tmp_path_factory.mktemp("bare"))


def _with_extra(wheel: Path, extra: str, folder: Path) -> Path:
    """Install the wheel with the locked packages of an extra; return its scripts."""
    wanted = ("--extra", extra) if extra else ()
    locked = ("--frozen", *wanted, "--no-default-groups", "--no-install-project")
    environment = {"UV_PROJECT_ENVIRONMENT": str(folder / "venv")}
    place = ("--project", sources.ROOT, "--python", sys.executable)
    uv("sync", *locked, *place, folder=folder, **environment)
    scripts = folder / "venv" / "bin"
    uv("pip", "install", "--python", scripts / "python", "--no-deps", wheel, folder=folder)
    return scripts


@pytest.mark.parametrize("program", ["hifi", *(f"hifi-{service}" for service in SERVICES)])
def test_without_its_extra_a_program_says_in_a_sentence_what_to_install(
    bare: Path, program: str
) -> None:
    extra = program.partition("-")[2] or "cli"
    ended = run(bare / program, "status", folder=bare)
    assert ended.returncode == 1
    (said,) = ended.stderr.splitlines()
    assert said.startswith(f"{program.replace('-', ' ')}: the package ")
    assert f'uv tool install "hifi-streams[{extra}]"' in said


@pytest.mark.parametrize("service", SERVICES)
def test_each_role_starts_from_its_own_extra(wheel: Path, tmp_path: Path, service: str) -> None:
    scripts = _with_extra(wheel, service, tmp_path)
    assert done(scripts / "hifi", "--version", folder=tmp_path).startswith("hifi ")
    ended = run(scripts / "hifi", "doctor", "--json", folder=tmp_path)
    assert "user" in [each["subject"] for each in json.loads(ended.stdout)["findings"]]
    if service == "gateway":
        # A gateway machine has no Spark, and so none of its programs.
        ended = run(scripts / "hifi", "up", folder=tmp_path)
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
        assert 'uv tool install "hifi-streams[local]"' in ended.stderr
    prefix = f"HIFI_{service.upper()}_"
    nobody_there = {
        f"{prefix}BOOTSTRAP_SERVERS": "127.0.0.1:1",
        f"{prefix}START_DEADLINE_S": "1",
        f"{prefix}FOLDER": str(tmp_path / "data"),
    }
    ended = run(scripts / f"hifi-{service}", folder=tmp_path, **nobody_there)
    assert ended.returncode == 1
    assert any(line.startswith(f"hifi {service}: ") for line in ended.stderr.splitlines()), (
        ended.stderr
    )


def test_only_our_packages_are_in_it_and_all_of_them(wheel: Path) -> None:
    packed = {
        name: content for name, content in _files_of(wheel).items() if ".dist-info/" not in name
    }
    ls_files = [program("git"), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        [*ls_files, *sources.PRODUCT],
        cwd=sources.ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    ours = {path: sources.ROOT / path for path in listed.stdout.splitlines()}
    there = {path: file.read_bytes() for path, file in ours.items() if file.is_file()}
    assert packed.keys() == there.keys()
    assert packed == there
    assert {
        "shared/runtime/java/jars.lock",
        "console/static/console.css",
        "deploy/alerts/hifi.yaml",
        "deploy/dashboards/overview.json",
    } <= packed.keys()


def test_it_carries_its_licence_and_names_its_commands(wheel: Path) -> None:
    information = {
        name.rpartition(".dist-info/")[2]: text for name, text in _files_of(wheel).items()
    }
    assert information["licenses/LICENSE"] == (sources.ROOT / "LICENSE").read_bytes()
    metadata = information["METADATA"].decode()
    assert "Name: hifi-streams\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    commands = information["entry_points.txt"].decode()
    assert all(f"hifi-{service} = deploy.programs:{service}" in commands for service in SERVICES)


def test_the_commands_work_without_the_source_tree(installed: Path) -> None:
    scripts = installed / "venv" / "bin"
    project = tomllib.loads((sources.ROOT / "pyproject.toml").read_text())["project"]
    where = "import shared; print(shared.__file__)"
    assert str(installed) in done(scripts / "python", "-c", where, folder=installed)
    assert done(scripts / "hifi", "--version", folder=installed) == f"hifi {project['version']}\n"
    assert "doctor" in done(scripts / "hifi", "--help", folder=installed)
    ended = run(scripts / "hifi", "doctor", "--json", folder=installed)
    assert "jars" in json.dumps(json.loads(ended.stdout)["findings"]), ended.stderr
    for service in SERVICES:
        wrong = {f"HIFI_{service.upper()}_LOG_LEVEL": "loud"}
        ended = run(scripts / f"hifi-{service}", folder=installed, **wrong)
        assert ended.returncode == 2, ended.stderr
        assert ended.stderr.startswith(f"hifi {service}: HIFI_{service.upper()}_LOG_LEVEL is ")


def test_the_core_passes_its_tests_as_it_is_installed(installed: Path) -> None:
    shutil.copytree(sources.ROOT / "tests", installed / "tests", dirs_exist_ok=True)
    shutil.copy(sources.ROOT / "pyproject.toml", installed)
    python = installed / "venv" / "bin" / "python"
    done(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE_TESTS, folder=installed)


def test_our_packages_belong_to_it_alone(installed: Path) -> None:
    ask = "import importlib.metadata as m, json; print(json.dumps(m.packages_distributions()))"
    owners = json.loads(done(installed / "venv" / "bin" / "python", "-c", ask, folder=installed))
    assert {name: owners[name] for name in sources.PRODUCT} == {
        name: ["hifi-streams"] for name in sources.PRODUCT
    }


def _files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
