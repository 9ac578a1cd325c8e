"""Unsafe settings, mere notes, and the remedy that each finding names."""

from dataclasses import replace

import pytest

from shared.event.times import DAY_MS
from shared.event.topic_safety import (
    DISK_BYTES_EASY,
    DISK_BYTES_MIN,
    Copies,
    TopicFinding,
    TopicState,
    examine_cluster,
    examine_disk,
    examine_elr,
    examine_jars,
    examine_login,
    examine_machine,
    examine_marks,
    examine_port,
    examine_python,
    examine_topic,
    is_safe,
)
from shared.event.topics import CONFIG, DEAD, RECEIPTS, REDRIVEN, fixed_specs, stream_spec

STREAM = stream_spec("demo")
FIXED = {spec.name: spec for spec in fixed_specs(["30s"])}
THREE, ONE = Copies(), Copies(1, 1)
SAFE = TopicState(
    name=STREAM.name,
    partition_count=4,
    replicas_min=3,
    in_sync_min=3,
    settings={**STREAM.settings, "min.insync.replicas": "2"},
)


def with_settings(**settings: str) -> TopicState:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return replace(SAFE, settings={**SAFE.settings, **named})


def grades(state: TopicState | None, copies: Copies = THREE) -> list[tuple[str, str]]:
    found = examine_topic(STREAM, state, copies=copies)
    assert all(one.mend for one in found if one.grade != "good"), "a finding names no remedy"
    return [(one.grade, one.says) for one in found]


def test_a_topic_as_it_should_be_is_said_to_be_good_with_its_facts() -> None:
    says = "4 Kafka partitions, RF 3, min ISR 2, LogAppendTime, delete, kept 7 days"
    assert grades(SAFE) == [("good", says)]


def test_a_compacted_topic_with_one_partition_is_told_without_a_time() -> None:
    spec = FIXED[CONFIG]
    state = TopicState(CONFIG, 1, 1, 1, spec.settings)
    (found,) = examine_topic(spec, state, copies=ONE)
    assert found == TopicFinding(
        CONFIG, "good", "1 Kafka partition, RF 1, min ISR 1, LogAppendTime, compact"
    )


def test_a_topic_that_is_not_there_is_unsafe() -> None:
    assert grades(None) == [("unsafe", "does not exist")]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (
            with_settings(message_timestamp_type="CreateTime"),
            "message.timestamp.type is CreateTime and should be LogAppendTime",
        ),
        (
            with_settings(cleanup_policy="compact"),
            "cleanup.policy is compact and should be delete",
        ),
        (
            with_settings(retention_ms=str(DAY_MS)),
            "retention.ms is 86400000 and should be 604800000",
        ),
        (
            replace(SAFE, settings={k: v for k, v in SAFE.settings.items() if k != "retention.ms"}),
            "retention.ms is not set and should be 604800000",
        ),
        (
            with_settings(unclean_leader_election_enable="true"),
            "unclean.leader.election.enable is true: a broker that lacks events may lead",
        ),
        (
            with_settings(retention_bytes="1000"),
            "retention.bytes is 1000: a busy day deletes events before they are delivered",
        ),
        (
            replace(SAFE, replicas_min=2, in_sync_min=2),
            "has RF 2 and should have 3",
        ),
        (
            with_settings(min_insync_replicas="1"),
            "min.insync.replicas is 1 and should be 2",
        ),
        (
            with_settings(min_insync_replicas="4"),
            "min.insync.replicas is 4 with RF 3: nothing can ever be stored",
        ),
        (
            replace(SAFE, in_sync_min=1),
            "only 1 of 3 replicas are in sync, but 2 must be: nothing can be stored now",
        ),
    ],
)
def test_one_thing_wrong_is_one_unsafe_finding(state: TopicState, says: str) -> None:
    assert grades(state) == [("unsafe", says)]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (replace(SAFE, in_sync_min=2), "2 of 3 replicas are in sync"),
        (
            replace(SAFE, partition_count=2),
            "has 2 Kafka partitions and was planned with 4",
        ),
    ],
)
def test_what_loses_nothing_is_a_note(state: TopicState, says: str) -> None:
    assert grades(state) == [("note", says)]


@pytest.mark.parametrize(
    "state",
    [
        with_settings(retention_ms="-1"),
        with_settings(retention_ms=str(30 * DAY_MS)),
        with_settings(retention_bytes="-1", unclean_leader_election_enable="false"),
        replace(SAFE, partition_count=12),
    ],
)
def test_more_than_is_needed_is_good(state: TopicState) -> None:
    assert [grade for grade, _ in grades(state)] == ["good"]


def test_kept_without_end_is_said_so() -> None:
    assert grades(with_settings(retention_ms="-1"))[0][1].endswith("kept forever")


def test_room_for_a_record_may_be_more_than_needed_and_not_less() -> None:
    spec = FIXED[RECEIPTS]
    wanted = int(spec.settings["max.message.bytes"])
    for found, grade in ((wanted - 1, "unsafe"), (wanted, "good"), (wanted + 1, "good")):
        settings = {**spec.settings, "max.message.bytes": str(found)}
        state = TopicState(RECEIPTS, spec.partition_count, 1, 1, settings)
        (finding,) = examine_topic(spec, state, copies=ONE)
        assert finding.grade == grade


def test_a_topic_that_is_read_as_one_sequence_must_have_one_partition() -> None:
    spec = FIXED[CONFIG]
    state = TopicState(CONFIG, 2, 1, 1, spec.settings)
    (found,) = examine_topic(spec, state, copies=ONE)
    assert (found.grade, found.says) == (
        "unsafe",
        "has 2 Kafka partitions and must have 1 to be read in order",
    )


def test_as_many_copies_are_wanted_as_are_set_however_many_brokers_there_are() -> None:
    """A topic that was created while a broker was away must not pass because it is still away."""
    single = replace(SAFE, replicas_min=1, in_sync_min=1, settings={**STREAM.settings})
    assert [says for _, says in grades(single)] == [
        "has RF 1 and should have 3",
        "min.insync.replicas is 1 and should be 2",
    ]
    assert [grade for grade, _ in grades(single, ONE)] == ["good"]
    assert THREE.falls_short(single)
    assert THREE.falls_short(with_settings(min_insync_replicas="1"))
    assert not THREE.falls_short(SAFE)
    assert not ONE.falls_short(single)


def test_several_things_wrong_are_several_findings() -> None:
    bad = replace(with_settings(cleanup_policy="compact"), replicas_min=1, in_sync_min=0)
    assert len(grades(bad)) == 3


@pytest.mark.parametrize(
    ("broker_count", "copies", "grade", "begins"),
    [
        (1, ONE, "note", "1 broker: an event is stored once"),
        (2, ONE, "note", "2 brokers: an event is stored once"),
        (2, Copies(2, 1), "note", "2 brokers: an event is stored 2 times"),
        (1, THREE, "unsafe", "1 broker answers, for 3 copies"),
        (2, THREE, "unsafe", "2 brokers answer, for 3 copies"),
        (3, THREE, "good", "3 brokers"),
        (6, THREE, "good", "6 brokers"),
    ],
)
def test_a_cluster_is_safe_when_it_can_keep_three_copies(
    broker_count: int, copies: Copies, grade: str, begins: str
) -> None:
    found = examine_cluster(copies, broker_count=broker_count)
    assert found.grade == grade
    assert found.says.startswith(begins)


@pytest.mark.parametrize(("level", "grade"), [(None, "note"), (0, "note"), (1, "good")])
def test_eligible_leader_replicas(level: int | None, grade: str) -> None:
    assert examine_elr(level).grade == grade


@pytest.mark.parametrize(
    ("version", "grade"),
    [((3, 11, 0), "good"), ((3, 13, 2), "good"), ((4, 0, 0), "good"), ((3, 10, 9), "unsafe")],
)
def test_python(version: tuple[int, ...], grade: str) -> None:
    found = examine_python(version, path="/usr/bin/python3")
    assert found.grade == grade
    assert "/usr/bin/python3" in found.says


def test_little_memory_is_a_note_that_says_what_to_do() -> None:
    found = examine_machine(cores=2, memory_bytes=8 * 10**9)
    assert (found.grade, found.says) == ("good", "2 processors, 8.0 GB of memory")
    found = examine_machine(cores=1, memory_bytes=2 * 10**9)
    assert (found.grade, found.says[:32]) == ("note", "1 processor, 2.0 GB of memory: `")
    assert "more memory" in found.mend


@pytest.mark.parametrize(
    ("mechanism", "protocol", "read"),
    [
        ("PLAIN", "SASL_PLAINTEXT", "password"),
        ("OAUTHBEARER", "SASL_PLAINTEXT", "token"),
        ("PLAIN", "SASL_SSL", ""),
        ("SCRAM-SHA-512", "SASL_PLAINTEXT", ""),
        ("AWS_MSK_IAM", "SASL_SSL", ""),
        (None, "PLAINTEXT", ""),
    ],
)
def test_a_login_that_others_can_read_is_a_note(
    mechanism: str | None, protocol: str, read: str
) -> None:
    found = examine_login(mechanism, is_encrypted=protocol == "SASL_SSL")
    assert found.grade == ("note" if read else "good")
    assert found.says.endswith(f"can read the {read}" if read else mechanism or "by certificate")
    assert ("SASL_SSL" in found.mend) is bool(read)


def test_missing_jars_are_a_note_because_they_are_fetched() -> None:
    assert examine_jars("spark", total=4, missing_bytes=[]).grade == "good"
    found = examine_jars("spark", total=4, missing_bytes=[1_000_000, 2_000_000])
    assert (found.grade, found.says) == ("note", "2 of 4 are in the cache")
    assert "3 MB" in found.mend


def test_a_port_may_be_free_or_ours_but_nobody_elses() -> None:
    assert examine_port(8080, option="--gateway-port", holder="nobody").grade == "good"
    assert examine_port(8080, option="--gateway-port", holder="hifi").grade == "good"
    found = examine_port(8080, option="--gateway-port", holder="somebody")
    assert found.grade == "unsafe"
    assert "--gateway-port" in found.mend


@pytest.mark.parametrize(
    ("free_bytes", "grade"),
    [
        (DISK_BYTES_MIN - 1, "unsafe"),
        (DISK_BYTES_MIN, "note"),
        (DISK_BYTES_EASY - 1, "note"),
        (DISK_BYTES_EASY, "good"),
    ],
)
def test_disk(free_bytes: int, grade: str) -> None:
    found = examine_disk("data", free_bytes=free_bytes)
    assert found.grade == grade
    assert "data" in found.says


def test_notes_are_safe_and_one_unsafe_finding_is_not() -> None:
    good, note = TopicFinding("a", "good", "x"), TopicFinding("b", "note", "y")
    assert is_safe([])
    assert is_safe([good, note])
    assert not is_safe([good, note, TopicFinding("c", "unsafe", "z")])


def a_state(name: str, **changed: str) -> TopicState:
    named = {setting.replace("_", "."): value for setting, value in changed.items()}
    spec = FIXED[name]
    return TopicState(name, spec.partition_count, 1, 1, {**spec.settings, **named})


@pytest.mark.parametrize("name", [DEAD, REDRIVEN])
def test_segments_of_before_they_were_short_are_told(name: str) -> None:
    week = a_state(name, segment_ms=str(7 * DAY_MS))
    (found,) = examine_topic(FIXED[name], week, copies=ONE)
    assert (found.grade, found.says) == (
        "unsafe", "segment.ms is 604800000 and should be 86400000",
    )  # fmt: skip
    assert found.mend.endswith(f"--topic {name} --add-config segment.ms=86400000")
    hour = a_state(name, segment_ms=str(DAY_MS // 24))
    assert [one.grade for one in examine_topic(FIXED[name], hour, copies=ONE)] == ["good"]


@pytest.mark.parametrize(
    ("dead_days", "mark_days", "wanted"),
    [(30, 32, None), (30, -1, None), (-1, -1, None), (30, 31, 32), (90, 32, 92), (-1, 32, -1)],
)
def test_who_keeps_letters_for_longer_must_keep_marks_for_longer(
    dead_days: int, mark_days: int, wanted: int | None
) -> None:
    def kept(days: int | None) -> str:
        return str(days * DAY_MS if days and days > 0 else -1)

    found = list(
        examine_marks(
            a_state(DEAD, retention_ms=kept(dead_days)),
            a_state(REDRIVEN, retention_ms=kept(mark_days)),
        )
    )
    assert len(found) == (wanted is not None)
    for one in found:
        assert (one.subject, one.grade) == (REDRIVEN, "unsafe")
        assert one.mend.endswith(f"--add-config retention.ms={kept(wanted)}")


# Settings that MSK Express allows on a topic (according to its configuration guide).
_EXPRESS = {
    *("cleanup.policy", "compression.type", "delete.retention.ms", "max.message.bytes"),
    *("message.timestamp.type", "message.timestamp.after.max.ms"),
    *("message.timestamp.before.max.ms", "min.compaction.lag.ms", "max.compaction.lag.ms"),
    *("retention.ms", "retention.bytes"),
}


def test_a_cluster_that_forbids_some_settings_is_told_the_others() -> None:
    left_out = frozenset({"min.insync.replicas", "segment.ms", "segment.bytes"})
    express = Copies(left_out=left_out, segment_ms=60_000)
    for spec in (*FIXED.values(), stream_spec("orders")):
        assert express.creation_settings_of(spec).keys() <= _EXPRESS
        assert Copies().creation_settings_of(spec)["min.insync.replicas"] == "2"
    # No finding asks for a change to a setting that cannot be changed.
    state = TopicState(DEAD, 2, 3, 3, {**FIXED[DEAD].settings, "min.insync.replicas": "2"})
    state.settings.pop("segment.ms")  # type: ignore[attr-defined]
    (finding,) = examine_topic(FIXED[DEAD], state, copies=express)
    assert finding.grade == "good"


def test_segments_are_set_where_something_is_deleted() -> None:
    copies = Copies(segment_ms=60_000)
    assert copies.settings_of(FIXED[RECEIPTS])["segment.ms"] == "60000"
    assert copies.settings_of(FIXED[DEAD])["segment.ms"] == "60000"
    assert "segment.ms" not in copies.settings_of(FIXED[CONFIG])
