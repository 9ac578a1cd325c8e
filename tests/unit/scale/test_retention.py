"""The future size of topics and of a full disk follows from traffic, by time and by size."""

from dataclasses import replace

import pytest

from shared.event.times import DAY_MS, HOUR_MS
from shared.scale.retention import BrokerDisk, TopicUse, days_until_full, forecast_of

GB = 10**9
# 1 MB/s, of which one day is stored so far.
USE = TopicUse(
    name="orders",
    partitions=4,
    copies=3,
    retention_ms=7 * DAY_MS,
    retention_bytes=None,
    is_compacted=False,
    segment_ms=7 * DAY_MS,
    segment_bytes=GB,
    record_count=86_400_000,
    stored_bytes=86_400_000_000,
    oldest_ms=0,
    recent_count=3_600_000,
    window_ms=HOUR_MS,
)
DISK = BrokerDisk(1, total_bytes=1_000 * GB, free_bytes=400 * GB, topic_bytes={})


def test_what_is_kept_by_time_is_the_rate_times_the_time() -> None:
    forecast = forecast_of(USE)
    assert (forecast.bound, forecast.bytes_s) == ("time", 1_000_000)
    assert forecast.kept_bytes == 7 * 86_400_000_000
    # Each partition may have one more segment before one is deleted.
    assert forecast.most_bytes == 7 * 86_400_000_000 + 4 * GB
    quick = forecast_of(replace(USE, segment_ms=HOUR_MS))
    assert quick.most_bytes == 7 * 86_400_000_000 + 3_600_000_000


def test_what_is_kept_by_size_is_of_each_partition() -> None:
    forecast = forecast_of(replace(USE, retention_bytes=50 * GB))
    assert (forecast.bound, forecast.kept_bytes) == ("size", 200 * GB)
    only = forecast_of(replace(USE, retention_ms=None, retention_bytes=50 * GB))
    assert (only.bound, only.kept_bytes) == ("size", 200 * GB)
    large = forecast_of(replace(USE, retention_bytes=5_000 * GB))
    assert large.bound == "time"


def test_what_is_kept_for_ever_or_compacted_has_no_forecast() -> None:
    for_ever = forecast_of(replace(USE, retention_ms=None))
    assert (for_ever.bound, for_ever.kept_bytes) == ("for ever", None)
    assert for_ever.most_bytes == float("inf")
    compacted = forecast_of(replace(USE, retention_ms=None, is_compacted=True))
    assert (compacted.bound, compacted.kept_bytes) == ("compacted", None)
    assert compacted.most_bytes == USE.stored_bytes
    # Marks of redrives are compacted and deleted.
    assert forecast_of(replace(USE, is_compacted=True)).bound == "time"


def test_an_empty_topic_keeps_nothing() -> None:
    empty = replace(USE, record_count=0, stored_bytes=0, recent_count=0, window_ms=0)
    assert forecast_of(empty).kept_bytes == 0
    assert days_until_full(replace(DISK, topic_bytes={"orders": 0}), [forecast_of(empty)]) is None


@pytest.mark.parametrize(
    ("free_gb", "days"),
    [
        # A third of all copies is here, so 1 MB/s: 86.4 GB a day for 6 days and a segment each.
        (100.0, 100 / 86.4),
        (500.0, 500 / 86.4),
        (523.0, None),
    ],
)
def test_a_disk_is_full_unless_retention_comes_first(free_gb: float, days: float | None) -> None:
    disk = replace(DISK, free_bytes=int(free_gb * GB), topic_bytes={"orders": USE.stored_bytes})
    told = days_until_full(disk, [forecast_of(USE)])
    assert told == (None if days is None else pytest.approx(days))


def test_topics_stop_growing_one_after_the_other() -> None:
    # Both at 1 MB/s; the first stops after 4,000 s (its segments), the second never.
    first = forecast_of(replace(USE, name="first", retention_ms=DAY_MS))
    second = forecast_of(replace(USE, name="second", retention_ms=None))
    held = {"first": USE.stored_bytes, "second": USE.stored_bytes, "others": 5}
    disk = replace(DISK, free_bytes=10 * GB, topic_bytes=held)
    assert days_until_full(disk, [first, second]) == pytest.approx(6_000 / 86_400)
    assert days_until_full(replace(disk, free_bytes=5 * GB), [first, second]) == pytest.approx(
        2_500 / 86_400
    )
    # A topic that is not on this broker does not fill it.
    assert days_until_full(replace(disk, topic_bytes={}), [first, second]) is None
    assert days_until_full(replace(disk, free_bytes=None), [first, second]) is None
