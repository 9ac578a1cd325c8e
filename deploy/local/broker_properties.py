"""Writes an embedded Kafka broker's configuration: its properties and its logging."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.runtime.defaults import HOST

_MB = 1024 * 1024
# Kafka notices a dead broker, and lets a killed one come back, only after this time: with its
# default of 9 s a restart after kill -9 took 12.4 s here, with 3 s it took 4.4 s. A broker may
# miss six heartbeats, twice as many as with Kafka's defaults.
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500
# How often an idle controller writes an empty record (default 0.5 s). Each one costs a disk write
# and a read by the broker, and is of no use with a single broker.
_NOTHING_NEW_MS = 30_000


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker, which is also a controller, and its ports."""

    broker_id: int
    port: int
    controller_port: int


def server_properties(
    broker: BrokerAddress,
    *,
    all_brokers: Sequence[BrokerAddress],
    data: Path,
    lock: Mapping[str, object] | None = None,
) -> str:
    """Return the text of server.properties for one broker of a set of one or three.

    `lock`: its settings for access. Without them, any client that reaches it may do everything.
    """
    protocol = "PLAINTEXT" if lock is None else "SASL_SSL"
    voters = ",".join(f"{each.broker_id}@{HOST}:{each.controller_port}" for each in all_brokers)
    client, controller = f"{HOST}:{broker.port}", f"{HOST}:{broker.controller_port}"
    return _text(
        {
            "process.roles": "broker,controller",
            "node.id": broker.broker_id,
            "controller.quorum.voters": voters,
            # Loopback only: without a lock, nothing authenticates clients.
            "listeners": f"{protocol}://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"{protocol}://{client}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": protocol,
            "listener.security.protocol.map": (
                f"{protocol}:{protocol},CONTROLLER:{'PLAINTEXT' if lock is None else 'SSL'}"
            ),
            **(lock or {}),
            "log.dirs": data,
            **_safety(len(all_brokers)),
            **_laptop(),
            **({"metadata.max.idle.interval.ms": _NOTHING_NEW_MS} if len(all_brokers) == 1 else {}),
        }
    )


def log4j2_properties() -> str:
    """Return a configuration that logs warnings and errors to standard output, the log file."""
    return _text(
        {
            "status": "error",
            "appender.out.type": "Console",
            "appender.out.name": "out",
            "appender.out.layout.type": "PatternLayout",
            "appender.out.layout.pattern": "%d{ISO8601} %p %m (%c{1})%n",
            "rootLogger.level": "WARN",
            "rootLogger.appenderRef.out.ref": "out",
            # Otherwise a broker that is down on purpose adds one line a second to the others' logs.
            "logger.net.name": "org.apache.kafka.clients.NetworkClient",
            "logger.net.level": "ERROR",
            # One line for each denied request: without them a missing right is hard to find.
            "logger.denied.name": "kafka.authorizer.logger",
            "logger.denied.level": "INFO",
            "logger.fetch.name": "kafka.server.ReplicaFetcherThread",
            "logger.fetch.level": "ERROR",
        }
    )


def _safety(broker_count: int) -> dict[str, object]:
    """The settings that decide whether an acknowledged event can be lost."""
    in_sync_min = 2 if broker_count > 1 else 1
    return {
        "default.replication.factor": broker_count,
        "min.insync.replicas": in_sync_min,
        "offsets.topic.replication.factor": broker_count,
        "transaction.state.log.replication.factor": broker_count,
        "transaction.state.log.min.isr": in_sync_min,
        "share.coordinator.state.topic.replication.factor": broker_count,
        "share.coordinator.state.topic.min.isr": in_sync_min,
        "unclean.leader.election.enable": "false",
        # A topic created by accident would have none of the required settings.
        "auto.create.topics.enable": "false",
        "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
        "broker.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    }


def _laptop() -> dict[str, object]:
    """Return settings that save space on a small machine; Kafka's defaults are for servers."""
    return {
        # A segment is the smallest piece that retention can delete (default 1 GB).
        "log.segment.bytes": 64 * _MB,
        # Enough for a segment of 64 MB at one index entry per 4 KB (default 10 MB, preallocated).
        "log.index.size.max.bytes": _MB,
        # Default 128 MB, a third of our heap, taken at the start. 16 MB hold 700,000 keys.
        "log.cleaner.dedupe.buffer.size": 16 * _MB,
        # Default 50 each: fifty folders, and fifty leaders to elect, for a handful of groups.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "offsets.topic.segment.bytes": 16 * _MB,
        "transaction.state.log.segment.bytes": 16 * _MB,
        # Default 8, which is too many: Hifi promises to run on two cores.
        "num.io.threads": 4,
        # Default 3 s, for the members of a large group to join; ours have one member each.
        "group.initial.rebalance.delay.ms": 0,
    }


def _text(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
