"""Settings of an embedded broker on which an acknowledged event depends."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.broker_properties import BrokerAddress, log4j2_properties, server_properties
from deploy.local.cluster import Cluster, useful_line
from deploy.local.kafka_lock import KafkaLock
from shared.event.rights import RIGHTS
from shared.runtime.setup_error import SetupError

_THREE = [BrokerAddress(1, 9101, 9201), BrokerAddress(2, 9102, 9202), BrokerAddress(3, 9103, 9203)]


def _properties(brokers: list[BrokerAddress], which: int = 0) -> dict[str, str]:
    text = server_properties(brokers[which], all_brokers=brokers, data=Path("/data"))
    rows = [line.partition("=")[::2] for line in text.splitlines()]
    assert len({key for key, _ in rows}) == len(rows)
    return dict(rows)


@pytest.mark.parametrize(("count", "factor", "in_sync_min"), [(1, "1", "1"), (3, "3", "2")])
def test_every_topic_is_as_safe_as_the_set_allows(
    count: int, factor: str, in_sync_min: str
) -> None:
    properties = _properties(_THREE[:count])
    assert properties["default.replication.factor"] == factor
    assert properties["min.insync.replicas"] == in_sync_min
    assert properties["offsets.topic.replication.factor"] == factor
    assert properties["transaction.state.log.replication.factor"] == factor
    assert properties["transaction.state.log.min.isr"] == in_sync_min
    assert properties["unclean.leader.election.enable"] == "false"
    assert properties["auto.create.topics.enable"] == "false"


def test_a_broker_listens_on_loopback_only_and_knows_all_voters() -> None:
    properties = _properties(_THREE, which=1)
    assert properties["node.id"] == "2"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9102,CONTROLLER://127.0.0.1:9202"
    assert properties["controller.quorum.voters"] == (
        "1@127.0.0.1:9201,2@127.0.0.1:9202,3@127.0.0.1:9203"
    )


def test_only_one_that_is_alone_seldom_says_that_there_is_nothing_new() -> None:
    assert int(_properties(_THREE[:1])["metadata.max.idle.interval.ms"]) > 10_000
    assert "metadata.max.idle.interval.ms" not in _properties(_THREE)


def test_topics_alone_decide_about_timestamps() -> None:
    assert not [key for key in _properties(_THREE) if "timestamp" in key]


def test_the_log_holds_warnings_and_errors() -> None:
    assert "rootLogger.level=WARN\n" in log4j2_properties()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "it wrote nothing"),
        (["one", "two", ""], "two"),
        (["a", "12:00 ERROR Exiting Kafka", "\tat Kafka.main"], "12:00 ERROR Exiting Kafka"),
        (["x ERROR y", "java.io.IOException: full", "\tat z"], "java.io.IOException: full"),
        (["x ERROR y", "\tat z", "Caused by: no space left"], "Caused by: no space left"),
        (
            ["Error: Could not create the Java Virtual Machine.", "more"],
            "Error: Could not create the Java Virtual Machine.",
        ),
    ],
)
def test_the_line_that_tells_why_is_found(lines: list[str], expected: str) -> None:
    assert useful_line(lines) == expected


def test_a_lock_lets_nobody_in_without_a_name() -> None:
    lock = {"authorizer.class.name": "StandardAuthorizer"}
    text = server_properties(_THREE[0], all_brokers=_THREE, data=Path("/data"), lock=lock)
    properties = dict(line.partition("=")[::2] for line in text.splitlines())
    assert "PLAINTEXT" not in text
    assert properties["listeners"] == "SASL_SSL://127.0.0.1:9101,CONTROLLER://127.0.0.1:9201"
    assert properties["advertised.listeners"] == "SASL_SSL://127.0.0.1:9101"
    protocols = "SASL_SSL:SASL_SSL,CONTROLLER:SSL"
    assert properties["listener.security.protocol.map"] == protocols
    assert properties["authorizer.class.name"] == "StandardAuthorizer"


def test_a_lock_is_made_once_and_read_by_its_owner_alone(tmp_path: Path) -> None:
    lock, again = KafkaLock(tmp_path / "lock"), KafkaLock(tmp_path / "lock")
    lock.make()
    again.make()
    assert again.is_made
    assert lock.variables("delivery") == again.variables("delivery")
    passwords = {lock.variables(user)["HIFI_KAFKA_PASSWORD"] for user in RIGHTS}
    assert len(passwords) == len(RIGHTS), "two services share a password"
    open_to_others = [p.name for p in (tmp_path / "lock").iterdir() if p.stat().st_mode & 0o077]
    assert open_to_others == ["ca.pem"]
    # Clients use it to check the broker's certificate.
    assert lock.access("delivery").tls is not None
    operator = tmp_path / "operator.env"
    lock.write_operator(operator)
    assert operator.stat().st_mode & 0o077 == 0
    assert "export HIFI_KAFKA_USER=operator\n" in operator.read_text()


def test_the_brokers_speak_to_each_other_as_somebody_whom_they_trust(tmp_path: Path) -> None:
    lock = KafkaLock(tmp_path / "lock")
    lock.make()
    properties = {key: str(value) for key, value in lock.properties().items()}
    assert properties["listener.name.controller.ssl.client.auth"] == "required"
    assert properties["super.users"] == "User:CN=hifi-broker;User:broker;User:operator"
    told = list(lock.format_arguments())
    assert [word.split(",")[0] for word in told if word != "--add-scram"] == [
        f"SCRAM-SHA-512=[name={user}" for user in ("broker", *RIGHTS)
    ]


@pytest.mark.parametrize(("first", "then"), [(False, True), (True, False)])
def test_a_data_folder_has_its_lock_for_good(first: object, then: object, tmp_path: Path) -> None:
    def start(is_secure: object) -> str:
        cluster = Cluster(folder=tmp_path, cache=tmp_path, is_secure=bool(is_secure))
        return cluster._decide_ports()

    assert start(first) == start(first)
    with pytest.raises(SetupError, match=r"a lock, but you want one .*: choose another data"):
        start(then)
