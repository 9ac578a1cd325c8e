"""After a power failure a file is either complete, or as it was before."""

import os
from pathlib import Path
from typing import Any

import pytest

from shared.runtime.files.whole_file import write_whole


def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """POSIX, fsync: a new name belongs to the folder, and is on disk once that is synced."""
    path = tmp_path / "state"
    path.write_bytes(b"old")
    seen: list[tuple[bool, bytes]] = []
    real: Any = os.fsync

    def fsync(descriptor: int) -> None:
        is_folder = os.fstat(descriptor).st_ino == tmp_path.stat().st_ino
        seen.append((is_folder, path.read_bytes()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(path, b"new", mode=0o600)
    assert seen == [(False, b"old"), (True, b"new")]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_what_a_machine_that_died_left_beside_it_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "state.new").write_bytes(b"torn")
    write_whole(tmp_path / "state", b"whole")
    assert (tmp_path / "state").read_bytes() == b"whole"
