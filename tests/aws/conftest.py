"""Synthesises each kind of site once, without access to any network."""

import importlib.util
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.deploy.aws_sites import site_of

NEEDS = ("aws_cdk", "cdk_nag", "cfnlint")


def pytest_collect_file(file_path: Path) -> None:
    """Skip the tests visibly where their packages are not installed: they must not just pass."""
    if file_path.suffix == ".py" and not all(map(importlib.util.find_spec, NEEDS)):
        pytest.skip("the templates' packages are not installed: run make test-aws")


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """Refuse every connection: a template follows from the files of the repository."""
    patch = pytest.MonkeyPatch()

    def refuse(_: socket.socket, address: object) -> None:
        raise AssertionError(f"a test of templates calls {address}")

    patch.setattr(socket.socket, "connect", refuse)
    patch.setattr(socket.socket, "connect_ex", refuse)
    yield
    patch.undo()


@pytest.fixture(scope="session", params=["express", "standard"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a site's templates; its synthesis has passed cdk-nag."""
    from deploy.aws.app import app_of  # noqa: PLC0415

    path = tmp_path_factory.mktemp(request.param)
    app_of(site_of(request.param), str(path)).synth()
    return path


@pytest.fixture(scope="session")
def resources(folder: Path) -> dict[str, Any]:
    """All resources of a site, by stack and logical id."""
    return {
        f"{path.name.split('.')[0].removeprefix('hifi-prod-')}/{name}": resource
        for path in sorted(folder.glob("*.template.json"))
        for name, resource in json.loads(path.read_text())["Resources"].items()
    }
