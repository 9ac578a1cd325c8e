"""The lines that Java writes into a process's log have the form of the process's own lines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

_LOGGER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_PROGRAM = f"""
import sys
from pathlib import Path
from shared.runtime.spark.session import SparkSettings, running_spark
daemon, folder = "delivery.lanes.worker_daemon", Path(sys.argv[1])
settings = SparkSettings("test", daemon, folder, service="delivery", task_places=1, heap_mb=512)
with running_spark(settings) as spark:
    log = spark._jvm.org.apache.logging.log4j.LogManager.getLogger("{_LOGGER}")
    log.info("nobody needs this")
    log.warn('the "first" line\\n\\tthe second, \\xfcber\\x01')
    log.error("it failed", spark._jvm.java.lang.IllegalStateException("for\\na reason"))
"""


def test_javas_lines_are_json_as_those_of_the_process(tmp_path: Path, no_spark: None) -> None:
    """Text over several lines stood between lines of JSON, and a line about JAVA_TOOL_OPTIONS."""
    del no_spark
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, tmp_path],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    lines = [json.loads(line) for line in ended.stderr.decode().splitlines()]
    assert all(line.pop("timestamp").endswith("Z") for line in lines)
    ours = [line for line in lines if line["logger"] == _LOGGER]
    exception = ours[1].pop("exception")
    assert exception.startswith("java.lang.IllegalStateException: for\na reason\n\tat ")
    common = {"service": "delivery", "logger": _LOGGER}
    assert ours == [
        common | {"event": 'the "first" line\n\tthe second, \xfcber\x01', "level": "warning"},
        common | {"event": "it failed", "level": "error"},
    ]
