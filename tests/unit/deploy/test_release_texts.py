"""Versions, changelog and bills of materials: each fault is one sentence with its remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.release import boms, changelog, versions
from deploy.release.linters import exposition
from shared.metric_names import GATEWAY_ACK_SECONDS, GATEWAY_EVENTS, GATEWAY_UP
from shared.runtime.java.jars import LockedJar, read_lock

CHANGELOG = """\
# Changelog

## Unreleased

## 0.2.0 - 2027-01-31

- **More.**

## 0.1.0 - 2026-11-30

The first.
"""
FILES = {
    "pyproject.toml": '[project]\nname = "hifi-streams"\nversion = "0.2.0"\n',
    "clients/python/pyproject.toml": '[project]\nversion = "0.2.0"\n',
    "clients/javascript/package.json": '{"version": "0.2.0"}',
    "compose.yaml": "a: ${HIFI_VERSION:-0.2.0}\nb: ${HIFI_VERSION:-0.2.0}\n",
    "deploy/chart/Chart.yaml": "version: 0.2.0\nappVersion: 0.2.0\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the files with versions, some of them changed."""

    def write(**changed: str) -> Path:
        for path, text in (FILES | changed).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return write


def test_one_version_everywhere_is_right(checkout: Callable[..., Path]) -> None:
    root = checkout()
    assert versions.version(root) == "0.2.0"
    assert list(versions.problems(root, tag="v0.2.0")) == []


@pytest.mark.parametrize("path", [path for path in FILES if path != "pyproject.toml"])
def test_another_version_is_found_in_each_file(checkout: Callable[..., Path], path: str) -> None:
    root = checkout(**{path: FILES[path].replace("0.2.0", "0.1.9", 1)})
    (found,) = versions.problems(root)
    assert found.startswith(path)
    assert found.endswith(" says 0.1.9, but pyproject.toml 0.2.0: write 0.2.0 there")


def test_a_tag_of_another_version_is_found(checkout: Callable[..., Path]) -> None:
    (found,) = versions.problems(checkout(), tag="v0.2.1")
    assert "the tag v0.2.1 is not v0.2.0" in found


def test_a_section_is_read_with_its_date() -> None:
    found = {each.version: each for each in changelog.sections(CHANGELOG)}
    assert list(found) == ["Unreleased", "0.2.0", "0.1.0"]
    assert found["0.2.0"] == ("0.2.0", "2027-01-31", "- **More.**")
    assert list(changelog.problems(CHANGELOG, "0.2.0")) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("## 0.2.0 - 2027-01-31", "## 0.1.9", "has no section `## 0.2.0 - YYYY-MM-DD`"),
        (" - 2027-01-31", "", "the section 0.2.0 has no date"),
        ("2027-01-31", "2027-02-31", "the section 0.2.0 has no date"),
        ("- **More.**", "", "the section 0.2.0 is empty"),
        ("## Unreleased\n", "", "does not begin with `## Unreleased`"),
        ("## Unreleased\n", "## Unreleased\n\n- Even more.\n", "Unreleased has entries"),
    ],
)
def test_a_fault_of_the_changelog_is_found(old: str, new: str, expected: str) -> None:
    (found,) = changelog.problems(CHANGELOG.replace(old, new), "0.2.0")
    assert expected in found


def test_notes_of_a_release_are_its_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "CHANGELOG.md"
    path.write_text(CHANGELOG)
    changelog.main("0.1.0", path)
    assert capsys.readouterr().out == "The first.\n"
    with pytest.raises(SystemExit, match=r"has no section 0\.3\.0"):
        changelog.main("0.3.0", path)


def test_the_bill_of_jars_names_each_jar_with_hash_and_licence() -> None:
    lock = read_lock()
    bom = boms.jars_bom("0.2.0", lock)
    assert list(boms.jar_problems(bom)) == []
    assert len(bom["components"]) == sum(map(len, lock.values()))
    (slf4j,) = (each for each in bom["components"] if each["name"] == "slf4j-api")
    (locked,) = (jar for jar in lock["broker"] if "slf4j-api" in jar.coordinate)
    assert slf4j["purl"] == f"pkg:maven/org.slf4j/slf4j-api@{slf4j['version']}?type=jar"
    assert slf4j["hashes"] == [{"alg": "SHA-256", "content": locked.sha256}]
    assert slf4j["licenses"] == [{"expression": "MIT"}]
    assert len({each["bom-ref"] for each in bom["components"]}) == len(bom["components"])


def test_a_jar_with_a_classifier_has_it_in_its_address() -> None:
    locked = LockedJar("software.amazon.msk:aws-msk-iam-auth:2.3.5:all", "00", 1)
    (jar,) = boms.jars_bom("0.2.0", {"msk": [locked]})["components"]
    assert jar["purl"] == (
        "pkg:maven/software.amazon.msk/aws-msk-iam-auth@2.3.5?classifier=all&type=jar"
    )
    assert (jar["version"], jar["licenses"]) == ("2.3.5", [{"expression": "Apache-2.0"}])


def test_a_jar_without_a_known_licence_is_found() -> None:
    bom = boms.jars_bom("0.2.0", {"spark": [LockedJar("org.example:new:1.0", "00", 1)]})
    (found,) = boms.jar_problems(bom)
    assert found.startswith("jars.lock has jars of org.example: add their licence")


def test_a_package_that_the_bill_lacks_is_found() -> None:
    bom = {"components": [{"name": "msgspec", "version": "0.22", "purl": "pkg:pypi/msgspec@0.22"}]}
    assert list(boms.package_problems(bom, "msgspec==0.22\n")) == []
    requirements = "aiokafka[lz4]==0.14.0 ; python_version < '4'\nmsgspec==0.22\n    # via x\n"
    (found,) = boms.package_problems(bom, requirements)
    assert found.startswith("the bill of Python packages lacks aiokafka 0.14.0")
    (found,) = boms.package_problems(bom, "")
    assert "names no requirements" in found


def test_metrics_are_written_as_a_process_shows_them() -> None:
    lines = exposition([GATEWAY_UP, GATEWAY_EVENTS, GATEWAY_ACK_SECONDS]).splitlines()
    assert [line for line in lines if not line.startswith("# HELP")] == [
        "# TYPE hifi_gateway_up gauge",
        "hifi_gateway_up{} 1",
        "# TYPE hifi_gateway_events_total counter",
        'hifi_gateway_events_total{stream="x",result="x"} 1',
        "# TYPE hifi_gateway_ack_seconds histogram",
        'hifi_gateway_ack_seconds_bucket{stream="x",le="+Inf"} 1',
        'hifi_gateway_ack_seconds_sum{stream="x"} 1',
        'hifi_gateway_ack_seconds_count{stream="x"} 1',
    ]
