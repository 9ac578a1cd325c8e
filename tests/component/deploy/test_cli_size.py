"""`hifi size` shows sizes and when a disk will be full, and reads the answers of brokers."""

import json
import struct
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.cli.scale.size import SizeReport
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import CONFIG, DEAD, RECEIPTS, stream_topic
from shared.runtime.kafka.topic_admin import DescribeDisksResponse, disk_of
from shared.scale.retention import BrokerDisk, TopicUse, forecast_of

NOW_MS = 1_700_000_000_000
ORDERS = stream_topic("orders")
USE = TopicUse(
    name=ORDERS,
    partitions=4,
    copies=3,
    retention_ms=7 * DAY_MS,
    retention_bytes=None,
    is_compacted=False,
    segment_ms=DAY_MS,
    segment_bytes=2**30,
    record_count=1_000_000,
    stored_bytes=600_000_000,
    oldest_ms=NOW_MS - 36 * HOUR_MS,
    recent_count=360_000,
    window_ms=HOUR_MS,
)
EMPTY = replace(USE, name=DEAD, record_count=0, stored_bytes=0, recent_count=0, oldest_ms=None)
BY_SIZE = replace(USE, name=RECEIPTS, retention_bytes=10**8)
KEPT = replace(USE, name=CONFIG, retention_ms=None, is_compacted=True)
REPORT = SizeReport(
    NOW_MS,
    [forecast_of(each) for each in (USE, BY_SIZE, KEPT, EMPTY)],
    [
        BrokerDisk(1, 10**12, 20 * 10**9, {ORDERS: 600_000_000}),
        BrokerDisk(2, 10**12, 900 * 10**9, {ORDERS: 600_000_000}),
        BrokerDisk(3, None, None, {ORDERS: 600_000_000}),
    ],
)


@pytest.fixture
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(_kafka: str, window_ms: int) -> SizeReport:
        assert window_ms == HOUR_MS
        return REPORT

    monkeypatch.setattr("deploy.cli.scale.size._look", look)


@pytest.mark.usefixtures("_found")
def test_each_topic_has_what_it_keeps_and_will_keep() -> None:
    result = CliRunner().invoke(app, ["size"])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    # 100 events/s of 600 bytes in three copies, for seven days.
    assert rows[ORDERS].split()[1:6] == ["7.0", "days", "1,800.0", "108,864.0", "0.180"]
    assert "1.5 days" in rows[ORDERS]
    assert "100 MB a partition" in rows[RECEIPTS]
    assert rows[CONFIG].split()[1:4] == ["compacted", "1,800.0", "-"]
    assert rows[DEAD].split()[-3:] == ["-", "-", "4"]


@pytest.mark.usefixtures("_found")
def test_a_disk_that_is_full_soon_is_said_aloud() -> None:
    result = CliRunner().invoke(app, ["size"])
    rows = [line.split() for line in result.stdout.splitlines()[-3:]]
    # A third of 180 kB/s: 20 GB in 3.9 days.
    assert rows[0] == ["1", "600.0", "20,000", "3.9", "days"]
    assert rows[1] == ["2", "600.0", "900,000", "never"]
    assert rows[2] == ["3", "600.0", "not", "known", "not", "known"]
    assert "The disk of broker 1 is full in 3.9 days: enlarge it" in result.stderr
    assert "broker 2" not in result.stderr


@pytest.mark.usefixtures("_found")
def test_programs_get_all_of_it() -> None:
    told = json.loads(CliRunner().invoke(app, ["size", "-o", "json"]).stdout)
    assert told["at_ms"] == NOW_MS
    assert [each["bound"] for each in told["topics"]] == ["time", "size", "compacted", "time"]
    assert [each["days_until_full"] for each in told["disks"]] == [
        *(pytest.approx(3.858, abs=0.001), None, None)
    ]


def text(words: str) -> bytes:
    return bytes([len(words) + 1]) + words.encode()


def folder(total: int, free: int, *sizes: int) -> bytes:
    """Encode a part of Kafka's DescribeLogDirsResponse 4: lengths plus one, and 0 for no tags."""
    partitions = b"".join(struct.pack(">iqqb", 0, size, 0, 0) + b"\0" for size in sizes)
    topic = text("orders") + bytes([len(sizes) + 1]) + partitions + b"\0"
    topics = b"\x02" + topic
    return struct.pack(">h", 0) + text("/data") + topics + struct.pack(">qq", total, free) + b"\0"


@pytest.mark.parametrize(
    ("folders", "disk"),
    [
        ([folder(100, 60, 7, 5)], BrokerDisk(9, 100, 60, {"orders": 12})),
        ([folder(100, 60, 7), folder(50, 1, 2)], BrokerDisk(9, 150, 61, {"orders": 9})),
        # Some managed brokers do not report the size of their disks.
        ([folder(-1, -1, 7)], BrokerDisk(9, None, None, {"orders": 7})),
        ([], BrokerDisk(9, None, None, {})),
    ],
)
def test_a_brokers_answer_is_read(folders: list[bytes], disk: BrokerDisk) -> None:
    raw = struct.pack(">ih", 0, 0) + bytes([len(folders) + 1]) + b"".join(folders) + b"\0"
    answer = DescribeDisksResponse.decode(raw)
    assert disk_of(9, answer, frozenset({"orders"})) == disk
    assert disk_of(9, answer, frozenset()).topic_bytes == {}
