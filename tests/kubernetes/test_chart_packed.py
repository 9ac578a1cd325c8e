"""Helm packs the chart together with the other files of a release."""

import tarfile
from pathlib import Path

from deploy.release.packages import build
from deploy.release.versions import CHART, version
from tests.tidy import sources


def test_a_chart_is_packed_with_the_rest(tmp_path: Path) -> None:
    assert (sources.ROOT / CHART / "Chart.yaml").is_file()
    assert list(build(tmp_path, needs_all=True)) == []
    with tarfile.open(tmp_path / f"hifi-{version()}.tgz") as packed:
        assert "hifi/values.schema.json" in packed.getnames()
