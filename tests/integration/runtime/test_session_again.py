"""A process that loses its lease and regains it has one Spark session after the other."""

from pathlib import Path

import pytest

from observe.audit.loop import audit_spark

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_a_process_has_a_session_after_the_first_was_stopped(
    tmp_path: Path, no_spark: None
) -> None:
    del no_spark
    counts = []
    for nth in "ab":
        with audit_spark(tmp_path / nth, None, heap_mb=512) as spark:
            counts.append(spark.range(3).count())
    assert counts == [3, 3]
