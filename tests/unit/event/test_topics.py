"""Every topic name and key, spelled out: other systems read them, so no change may go unseen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.event import topics
from shared.event.times import DAY_MS
from shared.event.topics import kept_spec, kept_topic
from shared.retry.schedule import RetrySchedule

NAMES = {
    "orders": True,
    "a": True,
    "0": True,
    "order-lines_2": True,
    "a" * 100: True,
    "a" * 101: False,
    "": False,
    "-orders": False,
    "_orders": False,
    "Orders": False,
    "or.ders": False,
    "or/ders": False,
    "or:ders": False,
    "or ders": False,
    "orders\n": False,
    "\u0661": False,
    "caf\u00e9": False,
}


@pytest.mark.parametrize("text", NAMES, ids=repr)
def test_a_name_is_what_the_table_says(text: str) -> None:
    assert topics.is_name(text) is NAMES[text]


@given(st.from_regex(topics.NAME_PATTERN, fullmatch=True))
def test_a_stream_is_found_again_in_its_topic(stream: str) -> None:
    topic = topics.stream_topic(stream)
    assert topics.stream_of(topic) == stream
    assert len(topic) <= 249  # Kafka's limit


def test_topics_are_spelled_like_this() -> None:
    assert topics.stream_topic("orders") == "hifi.stream.orders"
    assert topics.retry_topic("30s") == "hifi.retry.30s"
    assert topics.retry_topic("30s", is_parked=True) == "hifi.retry.30s.parked"
    assert topics.tier_of("hifi.retry.30s") == topics.tier_of("hifi.retry.30s.parked") == "30s"
    assert topics.stream_of("somebody.elses") == "somebody.elses"
    assert (topics.DEAD, topics.RECEIPTS) == ("hifi.dead", "hifi.receipts")
    assert (topics.CONFIG, topics.STATE) == ("hifi.config", "hifi.state")
    assert (topics.LANES, topics.PROBE) == ("hifi.lanes", "hifi.probe")
    assert (topics.ACKED, topics.MINUTES) == ("hifi.acked", "hifi.minutes")
    assert topics.STATEMENTS == "hifi.statements"
    assert topics.lane_group("orders/shop") == "hifi.lane.orders.shop"
    assert topics.lane_group("retrier-slow") == topics.lane_group("retrier") == "hifi.lane.retrier"
    assert topics.lease_group("observe") == "hifi.leases.observe"
    assert topics.pipeline_lane("orders", "sales") == "orders/pipeline:sales"
    assert topics.pipelines_writer(7) == "hifi-pipelines.7"
    assert topics.restore_writer("orders") == "hifi-restore-orders"
    assert topics.restore_group("r") == "hifi.restore.r"


def test_keys_are_spelled_like_this() -> None:
    assert topics.destination_id("orders", "shop") == "orders/shop"
    assert topics.config_key("stream", "orders") == b"stream:orders"
    assert topics.config_key("destination", "orders/shop") == b"destination:orders/shop"
    assert topics.config_key("pipeline", "sales") == b"pipeline:sales"
    assert topics.config_key("key", "shop-writer") == b"key:shop-writer"
    assert topics.config_key("tenant", "acme") == b"tenant:acme"
    assert topics.retry_key("orders/shop") == b"orders/shop"


def test_every_topic_is_stamped_by_the_broker() -> None:
    specs = [topics.stream_spec("orders"), *topics.fixed_specs(["30s", "5m"])]
    assert all(spec.settings["message.timestamp.type"] == "LogAppendTime" for spec in specs)


# name, Kafka partitions, cleanup policy, retention in days
SPECS = [
    ("hifi.stream.orders", 4, "delete", 7),
    ("hifi.retry.30s", 4, "delete", 4),
    ("hifi.retry.30s.parked", 4, "delete", 4),
    ("hifi.retry.5m", 4, "delete", 4),
    ("hifi.retry.5m.parked", 4, "delete", 4),
    ("hifi.retry.slow", 4, "delete", 4),
    ("hifi.dead", 2, "delete", 30),
    ("hifi.receipts", 2, "delete", 30),
    ("hifi.acked", 2, "delete", 8),
    ("hifi.minutes", 1, "delete", 30),
    ("hifi.statements", 1, "delete", 365),
    ("hifi.audit", 1, "compact", None),
    ("hifi.config", 1, "compact", None),
    ("hifi.changes", 1, "compact,delete", 365),
    ("hifi.uses", 1, "compact,delete", 365),
    ("hifi.state", 1, "compact", None),
    ("hifi.pipelines", 1, "compact", None),
    ("hifi.archive", 1, "delete", 30),
    ("hifi.restores", 1, "compact,delete", 30),
    ("hifi.replays", 1, "compact,delete", 30),
    ("hifi.lanes", 1, "compact", None),
    ("hifi.redriven", 1, "compact,delete", 32),
    ("hifi.requests", 4, "delete", 1),
    ("hifi.shares", 1, "delete", 0),
    ("hifi.terms", 1, "delete", 0),
    ("hifi.trials", 1, "delete", 0),
    ("hifi.probe", 12, "delete", 0),
]


def test_each_topic_is_set_up_as_the_table_says() -> None:
    day_ms = 86_400_000
    found = [
        (
            spec.name,
            spec.partition_count,
            spec.settings["cleanup.policy"],
            int(days) // day_ms if (days := spec.settings.get("retention.ms")) else None,
        )
        for spec in (topics.stream_spec("orders"), *topics.fixed_specs(["30s", "5m"]))
    ]
    assert found == SPECS


def test_a_stream_may_choose_its_partitions() -> None:
    assert topics.stream_spec("orders", partition_count=12).partition_count == 12


def test_no_retry_record_is_deleted_before_its_deadline() -> None:
    deadline_ms = RetrySchedule().deadline_s * 1000
    assert deadline_ms < topics.RETRY_RETENTION_MS < topics.DEAD_RETENTION_MS
    assert topics.DEAD_RETENTION_MS <= topics.RECEIPTS_RETENTION_MS


def test_a_name_is_held_until_the_last_of_its_events_must_be_gone() -> None:
    """An event waits for up to 4 days, then is dead for 30 days; segments add a week to both."""
    specs = [topics.stream_spec("orders"), *topics.fixed_specs(["30s", "8h"])]
    week_ms = str(7 * DAY_MS)
    kept = {
        spec.name: {**spec.settings, "segment.ms": week_ms}
        for spec in specs
        if spec.name in {"hifi.stream.orders", "hifi.retry.30s", "hifi.retry.8h", topics.DEAD}
    }
    assert topics.reserved_ms(["30s", "8h"], kept) == (4 + 7 + 30 + 7) * DAY_MS
    # The topics' present settings count, not the planned ones.
    kept["hifi.stream.orders"]["retention.ms"] = str(100 * DAY_MS)
    assert topics.reserved_ms(["30s", "8h"], kept) == (4 + 7 + 100 + 7) * DAY_MS
    assert topics.reserved_ms([], {}) == 0


@pytest.mark.parametrize("retention_ms", ["-1", "9223372036854775807"])
def test_a_name_is_held_for_ever_where_its_events_are(retention_ms: str) -> None:
    kept = {"hifi.stream.orders": {"retention.ms": retention_ms, "segment.ms": "1"}}
    assert topics.reserved_ms(["30s"], kept) is None


def test_a_mark_outlives_its_letter_whatever_segments_they_are_in() -> None:
    """Kafka, "retention.ms": it deletes a whole segment when its newest record is too old.

    So a letter is kept as long as the newest letter in its segment. A mark is written after its
    letter, and is kept at least for its own retention. Kafka checks every 5 minutes, so a day is
    enough margin.
    """
    by_name = {spec.name: spec.settings for spec in topics.fixed_specs(["30s"])}
    dead, marks = by_name[topics.DEAD], by_name[topics.REDRIVEN]
    letter_rests_ms = int(dead["retention.ms"]) + int(dead["segment.ms"])
    assert int(marks["retention.ms"]) >= letter_rests_ms + DAY_MS
    # With longer segments, readers would read expired marks for longer.
    assert int(marks["segment.ms"]) <= DAY_MS


def test_the_ledger_names_what_kafka_deletes_unread() -> None:
    assert topics.ACKED_RETENTION_MS > topics.STREAM_RETENTION_MS


def test_what_grows_with_the_traffic_has_as_many_partitions_as_are_set() -> None:
    counts = topics.PartitionCounts(retry=6, dead=3, receipts=12, ledger=9)
    specs = {spec.name: spec.partition_count for spec in topics.fixed_specs(["30s"], counts)}
    assert {specs[name] for name in topics.retry_topics(["30s"])} == {6}
    assert (specs[topics.DEAD], specs[topics.RECEIPTS], specs[topics.ACKED]) == (3, 12, 9)
    # These topics are read in order.
    assert {specs[name] for name in (topics.CONFIG, topics.STATE, topics.STATEMENTS)} == {1}


def test_a_cluster_that_does_not_tell_of_segments_keeps_them_for_kafkas_week() -> None:
    kept = {topics.DEAD: {"retention.ms": str(DAY_MS)}}
    assert topics.reserved_ms([], kept) == 8 * DAY_MS


def test_what_a_pipeline_keeps_has_a_topic_for_each_generation() -> None:
    assert kept_topic("sales") == "hifi.kept.sales"
    spec = kept_spec("sales", 2)
    assert (spec.name, spec.partition_count) == ("hifi.kept.sales.2", 1)
    assert spec.settings["cleanup.policy"] == "compact"
    assert topics.name_and_generation("sales") == ("sales", 1)
    assert topics.name_and_generation("sales.2") == ("sales", 2)
    assert topics.name_and_generation("sales.old") == ("sales", 0)
