"""Gives tests of pipelines a Spark session like that of the processes that run pipelines."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from shared.config.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LockedSpark:
    """One session for all who want it: it starts in 5 s, and a process has one at a time."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._resources = ExitStack()
        self._session: SparkSession | None = None

    def session(self) -> "SparkSession":
        if self._session is None:
            # Other tests need not load Spark for this.
            from pipelines.judging.sandbox import trial_session  # noqa: PLC0415

            trial = trial_session(self._folders.mktemp("spark"))
            self._session = self._resources.enter_context(trial)
        return self._session

    def end(self) -> None:
        self._session = None
        self._resources.close()


@pytest.fixture(scope="session")
def _locked_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSpark]:
    spark = LockedSpark(tmp_path_factory)
    yield spark
    spark.end()


@pytest.fixture(scope="module")
def locked_spark(_locked_spark: LockedSpark) -> "SparkSession":
    """Return a session with only the tools that pipelines may use; tests only read from it."""
    return _locked_spark.session()


@pytest.fixture(scope="module")
def no_spark(_locked_spark: LockedSpark) -> None:
    """End the session before a test starts another: a process has one at a time."""
    _locked_spark.end()


def a_pipeline(*steps: dict[str, Any], **more: Any) -> Pipeline:
    """Return a pipeline that reads orders, applies these steps, and writes the rest to sales."""
    schema = (
        "id STRING, type STRING, price DOUBLE, n BIGINT, at TIMESTAMP, day DATE, ok BOOLEAN,"
        " tags ARRAY<STRING>, items ARRAY<STRUCT<sku: STRING, n: INT>>, who STRUCT<name: STRING>,"
        " extra MAP<STRING, STRING>"
    )
    document = {"name": "trial", "from": {"stream": "orders"}, "to": [{"stream": "sales"}]}
    return Pipeline.of({**document, "schema": schema, "steps": list(steps), **more})
