"""Other programs read an archive: DuckDB runs the example in the docs."""

import re
from pathlib import Path

import duckdb

from tests.support.pipelines.archive_made import AT_MS, kept, row, sink_of

_PAGE = Path(__file__).parents[3] / "docs" / "archive.md"
_KEPT_AT = "data/archive/default/streams/orders/archive=*"


def test_duckdb_reads_what_the_page_says(tmp_path: Path) -> None:
    kept(sink_of(tmp_path), row(0, 12), row(1, 10))
    kept(sink_of(tmp_path, life="new"), row(0, 13))
    (example,) = re.findall(r"```sql\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert _KEPT_AT in example
    ours = example.replace("data/archive", str(tmp_path))
    with duckdb.connect() as connection:
        found = connection.execute(ours).fetchall()
    assert found == [(3, AT_MS - 13, AT_MS - 10)]
