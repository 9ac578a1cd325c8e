"""The import contracts are kept, and cover every module."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.tidy import sources


def pyproject() -> str:
    return (sources.ROOT / "pyproject.toml").read_text()


def contracts() -> dict[str, dict[str, object]]:
    listed = tomllib.loads(pyproject())["tool"]["importlinter"]["contracts"]
    return {contract["id"]: contract for contract in listed}


def test_every_room_of_the_core_is_pure() -> None:
    paths = [path.split("/") for path in sources.product_files() if path.startswith("shared/")]
    rooms = {f"shared.{path[1]}" for path in paths if len(path) > 2}
    listed = sources.pure_modules()
    assert listed == sorted(listed), "pyproject.toml: pure-core lists its modules in order"
    assert rooms - {"shared.runtime"} <= set(listed), "pyproject.toml: pure-core lists every room"
    assert len(sources.core_files()) > len(listed), "a listed module has no file"


def test_every_branch_is_asked_of_all_that_is_pure() -> None:
    measured = tomllib.loads(pyproject())["tool"]["coverage"]["run"]["source_pkgs"]
    assert measured == sources.pure_modules(), (
        "pyproject.toml: coverage measures what pure-core lists"
    )


def test_every_package_is_under_contract() -> None:
    tool = tomllib.loads(pyproject())["tool"]
    shipped = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(tool["importlinter"]["root_packages"]) == set(shipped)
    assert set(shipped) == set(sources.PRODUCT)


def test_every_contract_has_a_sentence_for_its_name() -> None:
    for contract in contracts().values():
        name = str(contract["name"])
        assert len(name.split()) >= 5, f"pyproject.toml: {name!r} is no sentence"


def test_the_import_contracts_are_kept() -> None:
    status, said = lint(sources.ROOT)
    assert status == 0, said


# a file, the line that breaks a contract, and how the linter reports it
BREACHES = [
    (
        "deploy/cli/events/proofs.py",
        "import shared.proof.merkle",
        "deploy.cli.events.proofs -> shared.proof.merkle",
    ),
    ("gateway/breach.py", "import delivery.http.sender", "gateway.breach -> delivery.http.sender"),
    ("retrier/breach.py", "import delivery.http.sender", "retrier.breach -> delivery.http.sender"),
    ("retrier/breach.py", "import shared.runtime.clock", "retrier.breach -> shared.runtime.clock"),
    ("shared/proof/breach.py", "import shared.config", "shared.proof.breach -> shared.config"),
    ("delivery/http/breach.py", "import delivery.sending", "No cycles are allowed in delivery."),
    ("shared/runtime/breach.py", "import observe", "shared.runtime.breach -> observe"),
    ("delivery/breach.py", "import deploy.local", "delivery.breach -> deploy.local"),
    (
        "shared/event/envelope.py",
        "import shared.retry.decision",
        "shared.event.envelope -> shared.retry.decision",
    ),
    ("shared/retry/decision.py", "import random", "shared.retry.decision -> random"),
    (
        "shared/proof/balance.py",
        "import shared.runtime.clock",
        "shared.proof.balance -> shared.runtime.clock",
    ),
    ("observe/breach.py", "import aiokafka", "observe.breach -> aiokafka"),
    ("observe/breach.py", "import httpx", "observe.breach -> httpx"),
    (
        "deploy/cli/breach.py",
        "import shared.runtime.kafka.only_writer",
        "deploy.cli.breach -> shared.runtime.kafka.only_writer",
    ),
    ("observe/breach.py", "import pyspark", "observe.breach -> pyspark"),
    ("observe/breach.py", "import pyarrow", "observe.breach -> pyarrow"),
    ("pipelines/breach.py", "import obstore", "pipelines.breach -> obstore"),
    ("observe/breach.py", "import prometheus_client", "observe.breach -> prometheus_client"),
    ("observe/breach.py", "import fastapi", "observe.breach -> fastapi"),
    ("observe/breach.py", "import httptools", "observe.breach -> httptools"),
    ("observe/breach.py", "import h2.connection", "observe.breach -> h2"),
    ("observe/breach.py", "import cryptography", "observe.breach -> cryptography"),
    ("gateway/breach.py", "import lmdb", "gateway.breach -> lmdb"),
    ("observe/breach.py", "import aws_cdk", "observe.breach -> aws_cdk"),
]


def test_a_breach_of_each_contract_is_found(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    for path, line, _ in BREACHES:
        with (tmp_path / path).open("a") as file:
            file.write(f"\n{line}\n")
    status, said = lint(tmp_path)
    assert status == 1
    assert [row for row in BREACHES if row[2] not in said] == [], said
    assert f"{len(contracts())} broken" in said, said


def test_a_core_module_without_a_layer_is_found(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    (tmp_path / "shared" / "stray.py").write_text("")
    status, said = lint(tmp_path)
    assert status == 1
    assert "- shared.stray" in said, said


def lint(folder: Path) -> tuple[int, str]:
    ended = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    return ended.returncode, ended.stdout + ended.stderr


def copy_sources(folder: Path) -> None:
    for path, text in {**sources.product_files(), "pyproject.toml": pyproject()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
