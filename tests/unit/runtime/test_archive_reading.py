"""An object that is still being written is not damaged; one that has long had no manifest is."""

from typing import Any

import pytest

from shared.proof.archived import ArchiveId
from shared.runtime.archive import reading

ARCHIVE = ArchiveId("default", "orders", "orders-archive", "8sQhqYdpRkKmZB2H1cWgfA")
PLACE = "date=2026-11-24/partition=0/00000000000000000000-00000000000000001250"


class Bucket:
    """A bucket with one object, whose manifest appears at the given look."""

    def __init__(self, comes_at: int) -> None:
        self._looks_left = comes_at

    def names(self, prefix: str) -> list[str]:
        return [f"{prefix}/{PLACE}.parquet"] if prefix == ARCHIVE.objects else []

    def get(self, path: str) -> bytes | None:
        assert path == f"{ARCHIVE.manifests}/{PLACE}.json"
        self._looks_left -= 1
        return b"{}" if self._looks_left < 0 else None


@pytest.mark.parametrize(("comes_at", "is_missing"), [(0, False), (1, False), (9, True)])
def test_what_stands_beside_an_object_may_come_a_moment_later(
    monkeypatch: pytest.MonkeyPatch, comes_at: int, *, is_missing: bool
) -> None:
    monkeypatch.setattr(reading, "_MOMENT_S", 0.0)
    bucket: Any = Bucket(comes_at)
    there = reading.listed(bucket, ARCHIVE)
    assert there.objects == ()
    assert [it.kind for it in there.damage] == (["missing"] if is_missing else [])
