"""Processors and memory are counted by the container's quota, of both versions of cgroups."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from shared.runtime.machine import machine_size
from shared.runtime.machine.machine_size import core_count, memory_bytes

GB = 10**9
NO_LIMIT = "9223372036854771712"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a machine of 16 processors and 64 GB have cgroups in a folder of the test."""
    monkeypatch.setattr(machine_size, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine_size, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    sizes = {"SC_PAGE_SIZE": 1_000, "SC_PHYS_PAGES": 64_000_000}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__)
    return tmp_path


def lay_out(groups: Path, own: str, files: Mapping[str, str]) -> None:
    (groups / "own").write_text(own)
    for name, text in files.items():
        file = groups / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


@pytest.mark.usefixtures("groups")
def test_without_groups_all_that_the_machine_has_counts() -> None:
    assert (core_count(), memory_bytes()) == (16, 64 * GB)


@pytest.mark.parametrize(
    ("quota", "limit", "expected"),
    [
        ("max 100000", "max", (16, 64 * GB)),
        ("200000 100000", str(2 * GB), (2, 2 * GB)),
        # Half a processor more is one that may be used, but not all the time.
        ("250000 100000", str(GB), (3, GB)),
        ("10000 100000", str(GB), (1, GB)),
        # A container may have a larger quota than its machine has processors.
        ("6400000 100000", str(900 * GB), (16, 64 * GB)),
    ],
)
def test_a_container_has_its_quota(
    groups: Path, quota: str, limit: str, expected: tuple[int, int]
) -> None:
    lay_out(groups, "0::/\n", {"cpu.max": quota, "memory.max": limit})
    assert (core_count(), memory_bytes()) == expected


def test_the_smallest_quota_of_a_group_and_of_those_above_it_counts(groups: Path) -> None:
    files = {
        "pods/cpu.max": "300000 100000",
        "pods/hifi/cpu.max": "max 100000",
        "pods/memory.max": "max",
        "pods/hifi/memory.max": str(3 * GB),
    }
    lay_out(groups, "0::/pods/hifi\n", files)
    assert (core_count(), memory_bytes()) == (3, 3 * GB)


def test_the_first_version_of_cgroups_has_a_folder_for_each_controller(groups: Path) -> None:
    own = "5:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n1:name=systemd:/docker/1f\n0::/\n"
    files = {
        "cpu/cpu.cfs_quota_us": "400000",
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": NO_LIMIT,
        "memory/docker/1f/memory.limit_in_bytes": str(5 * GB),
    }
    lay_out(groups, own, files)
    assert (core_count(), memory_bytes()) == (4, 5 * GB)


def test_a_quota_of_minus_one_is_none(groups: Path) -> None:
    files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
    lay_out(groups, "5:cpu,cpuacct:/\n", files)
    assert core_count() == 16
