"""What tests of pipelines stand on: a Spark session as those have that run them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from shared.config.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def locked_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session in which there is nothing but what pipelines may use."""
    # No other test need load Spark for this.
    from pipelines.judging.sandbox import OPTIONS, lock  # noqa: PLC0415
    from shared.runtime.spark.session import SparkSettings, running_spark  # noqa: PLC0415

    settings = SparkSettings(
        name="trial",
        worker_daemon="pipelines.worker_daemon",
        folder=tmp_path_factory.mktemp("spark"),
        slots=1,
        heap_mb=512,
        more=OPTIONS,
    )
    with running_spark(settings) as session:
        lock(session)
        yield session


def a_pipeline(*steps: dict[str, Any], **more: Any) -> Pipeline:
    """One that reads orders, and writes to sales what is left after these steps."""
    schema = (
        "id STRING, type STRING, price DOUBLE, n BIGINT, at TIMESTAMP, day DATE, ok BOOLEAN,"
        " tags ARRAY<STRING>, items ARRAY<STRUCT<sku: STRING, n: INT>>, who STRUCT<name: STRING>,"
        " extra MAP<STRING, STRING>"
    )
    document = {"name": "trial", "from": {"stream": "orders"}, "to": [{"stream": "sales"}]}
    return Pipeline.of({**document, "schema": schema, "steps": list(steps), **more})
