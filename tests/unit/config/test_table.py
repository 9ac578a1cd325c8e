"""Tables: their settings, the settings of their topics, and the names of their rows."""

from dataclasses import replace

import pytest

from shared.config.configuration import REMOVED_KEPT_MS, Configuration, RemovedTable
from shared.config.model import ConfigError
from shared.config.table import Table
from shared.event.table_row import (
    ROW_KEY_BYTES_MAX,
    is_row_key,
    is_window_of,
    names_row,
    window_key,
    windows_between,
)
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import SEGMENT_MS, stream_topic, table_of


def test_a_table_is_a_compacted_topic_of_one_partition() -> None:
    table = Table("customers")
    assert table.topic == "hifi.table.customers"
    assert table.spec.partition_count == 1
    assert table.spec.settings["cleanup.policy"] == "compact"
    assert "retention.ms" not in table.spec.settings
    # A table that is rebuilt, or built beside the old one, has a topic of its own.
    assert replace(table, generation=2).topic == "hifi.table.customers.2"
    assert table_of(replace(table, generation=2).topic) == "customers"
    assert table_of(stream_topic("orders")) == stream_topic("orders")


@pytest.mark.parametrize(
    ("retention_ms", "segment_ms"), [(HOUR_MS, HOUR_MS), (30 * DAY_MS, SEGMENT_MS)]
)
def test_of_a_table_with_a_retention_old_rows_are_deleted(
    retention_ms: int, segment_ms: int
) -> None:
    settings = Table("t", retention_ms=retention_ms).spec.settings
    assert settings["cleanup.policy"] == "compact,delete"
    assert settings["retention.ms"] == str(retention_ms)
    assert settings["segment.ms"] == str(segment_ms)


def test_one_that_was_removed_keeps_its_name_for_its_owner_for_a_time() -> None:
    table = Table("customers", tenant="shop")
    there = Configuration().apply(table.config_key, table.to_json())
    assert there.tables == {"customers": table}
    gone = RemovedTable("customers", "shop", 1, 1_000)
    after = there.apply(gone.config_key, gone.to_json())
    assert (after.tables, after.removed_tables) == ({}, {"customers": gone})
    assert [*after.outlived(now_ms=REMOVED_KEPT_MS)] == []
    assert [*after.outlived(now_ms=REMOVED_KEPT_MS + 1_001)] == [b"table:customers"]


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "a.b"},
        {"retention_ms": 1},
        {"row_bytes_max": 1_000_001},
        {"bytes_max": 1},
        {"written_by": "Not A Name"},
        {"generation": 0},
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        Table.of({"name": "customers", **changed})
    assert refused.value.setting == next(iter(changed))


def test_a_key_of_a_row_is_a_line_of_text() -> None:
    assert is_row_key("DE")
    assert is_row_key("a/b @ ü")
    assert is_row_key("x" * ROW_KEY_BYTES_MAX)
    for wrong in ("", "a\nb", "a\x00b", "x" * (ROW_KEY_BYTES_MAX + 1), "ü" * 241, "\ud800"):
        assert not is_row_key(wrong)


def test_whoever_writes_past_us_may_use_other_text_but_no_bytes_that_are_none() -> None:
    assert names_row(b"a\n")
    assert not any(map(names_row, (b"", b"\xff", b"x" * (ROW_KEY_BYTES_MAX + 1))))


def test_the_windows_of_a_group_sort_by_time_and_are_told_from_those_of_others() -> None:
    keys = [window_key("DE", at * HOUR_MS) for at in range(5)]
    assert keys == sorted(keys)
    assert keys[0] == "DE@1970-01-01T00:00:00.000Z"
    begin, end = windows_between("DE", HOUR_MS, 3 * HOUR_MS)
    assert [key for key in keys if begin <= key < end] == keys[1:3]
    assert all(is_window_of(key, "DE") for key in keys)
    assert not is_window_of(window_key("DE@x", 0), "DE")
    assert not is_window_of(window_key("D", 0), "DE")
