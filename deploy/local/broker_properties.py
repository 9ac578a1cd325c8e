"""Writes an embedded Kafka broker's configuration: its properties and its logging."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.runtime.defaults import HOST

_MB = 1024 * 1024
# A broker that died without a word is noticed, and one that was killed may come back, only after
# this time: with Kafka's default of 9 s a restart after kill -9 took 12.4 s here, with 3 s 4.4 s.
# Six heartbeats must be missed, twice the ratio that Kafka's own defaults leave for a stall.
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500
# How often a controller with nothing to write writes that (default 0.5 s): each time a record for
# the disk, and for the broker to read, which tells nobody anything where there is but one.
_NOTHING_NEW_MS = 30_000


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker, which is also a controller, and where it listens."""

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
    """The text of server.properties for one broker of a set of one or three.

    `lock`: its settings for access. Without one any client that reaches it may do everything.
    """
    protocol = "PLAINTEXT" if lock is None else "SASL_SSL"
    voters = ",".join(f"{each.broker_id}@{HOST}:{each.controller_port}" for each in all_brokers)
    client, controller = f"{HOST}:{broker.port}", f"{HOST}:{broker.controller_port}"
    return _text(
        {
            "process.roles": "broker,controller",
            "node.id": broker.broker_id,
            "controller.quorum.voters": voters,
            # Loopback only: without a lock nothing here asks who is calling.
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
    """Warnings and errors to standard output, which is the broker's log file."""
    return _text(
        {
            "status": "error",
            "appender.out.type": "Console",
            "appender.out.name": "out",
            "appender.out.layout.type": "PatternLayout",
            "appender.out.layout.pattern": "%d{ISO8601} %p %m (%c{1})%n",
            "rootLogger.level": "WARN",
            "rootLogger.appenderRef.out.ref": "out",
            # A broker that is down on purpose would fill the others' logs with one line a second.
            "logger.net.name": "org.apache.kafka.clients.NetworkClient",
            "logger.net.level": "ERROR",
            # One line for each denied request: without it a missing right is hard to find.
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
        # A topic made by accident would have none of the settings that topics must have.
        "auto.create.topics.enable": "false",
        "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
        "broker.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    }


def _laptop() -> dict[str, object]:
    """The settings that save space on a small machine; Kafka's defaults are for servers."""
    return {
        # A segment is the smallest piece that retention can delete (default 1 GB).
        "log.segment.bytes": 64 * _MB,
        # Enough for a segment of 64 MB at one index entry per 4 KB (default 10 MB, preallocated).
        "log.index.size.max.bytes": _MB,
        # Default 128 MB, taken from the heap at start: a third of ours. 16 MB is 700,000 keys.
        "log.cleaner.dedupe.buffer.size": 16 * _MB,
        # Default 50 each: fifty folders and as many leaders to elect for a handful of groups.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "offsets.topic.segment.bytes": 16 * _MB,
        "transaction.state.log.segment.bytes": 16 * _MB,
        # Default 8: two cores are what we promise to run on.
        "num.io.threads": 4,
        # Default 3 s, so that a large group gathers; ours have one member each.
        "group.initial.rebalance.delay.ms": 0,
    }


def _text(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
