"""Creates topics with the core's settings, and reads their actual settings."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import ClusterAuthorizationFailedError, for_code
from aiokafka.protocol.admin import CreateAclsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from shared.event.rights import Operation, Resource, Right
from shared.event.topic_safety import Copies, TopicState
from shared.event.topics import TopicSpec
from shared.runtime.kafka.clients import KafkaAdmin, new_admin, running
from shared.runtime.kafka.settings import kafka_access
from shared.runtime.setup_error import KafkaRefusedError, KafkaUnavailableError
from shared.scale.retention import BrokerDisk

# A new topic has leaders within 100 ms unless brokers are missing.
_LEADERS_TIMEOUT_S = 30.0
_LEADERS_LOOK_S = 0.05
# Kafka's code for a topic that already exists, which is what we want.
_ALREADY_THERE = 36
# Kafka's code for a topic that does not exist (any more).
_UNKNOWN_TOPIC = 3
# Kafka's code for fewer brokers than requested copies.
_TOO_FEW_BROKERS = 38
# Kafka's value for the number of copies in its own default.replication.factor.
_AS_KAFKA_SAYS = -1
# A broker on the same continent answers within this time even while it elects leaders.
_REQUEST_TIMEOUT_MS = 10_000
# aiokafka lacks ApiVersions 3, whose answer names the cluster's features (KIP-584).
_API_VERSIONS = 18
# It also lacks DescribeLogDirs, whose version 4 reports a disk's space (KIP-827).
_DESCRIBE_LOG_DIRS = 35
_FINALIZED_FEATURES_TAG = 2
# Kafka's numbers for the subjects of rights.
_RESOURCES: dict[Resource, int] = {"topic": 2, "group": 3, "cluster": 4, "transactional id": 5}
_OPERATIONS: dict[Operation, int] = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
}
_LITERAL, _PREFIXED, _ALLOW = 3, 4, 3
_TAGS = ("tags", TaggedFields)
_TEXT = CompactString("utf-8")
_FEATURES = CompactArray(("name", _TEXT), ("level", Int16), ("level_min", Int16), _TAGS)


@asynccontextmanager
async def topic_admin(bootstrap_servers: str) -> AsyncIterator["TopicAdmin"]:
    """Open an admin for the block; KafkaUnavailableError if no broker answers."""
    client = new_admin(bootstrap_servers, request_timeout_ms=_REQUEST_TIMEOUT_MS)
    async with running(client, bootstrap_servers):
        yield TopicAdmin(client)


class TooFewBrokersError(KafkaUnavailableError):
    """A topic was not created, because it would have too few copies."""


class TopicAdmin:
    """Creates and describes topics; `topic_admin` opens one."""

    def __init__(self, client: KafkaAdmin) -> None:
        self._client = client

    async def broker_count(self) -> int:
        return len((await self._client.describe_cluster())["brokers"])

    async def features(self) -> dict[str, int] | None:
        """Return the level of each enabled feature of the cluster; None if it does not say."""
        client = self._client._client  # noqa: SLF001 - its own requests have no features
        try:
            response = await client.send(client.get_random_node(), ApiVersionsRequest())
        except NotImplementedError:
            return None
        return finalized_features(response)

    async def names(self) -> set[str]:
        return set(await self._client.list_topics())

    async def create_missing(
        self, specs: Iterable[TopicSpec], copies: Copies | None = None
    ) -> list[str]:
        """Create the missing topics, with the wanted number of copies or not at all.

        If `copies` is None, the brokers' own default decides.
        """
        existing = await self.names()
        missing = [spec for spec in specs if spec.name not in existing]
        if not missing:
            return []
        replicas = _AS_KAFKA_SAYS if copies is None else copies.replicas
        response = await self._client.create_topics(
            [
                NewTopic(
                    spec.name,
                    spec.partition_count,
                    replicas,
                    # Without it, the client does not let Kafka choose.
                    replica_assignments={} if copies is None else None,
                    topic_configs=(
                        dict(spec.settings) if copies is None else copies.creation_settings_of(spec)
                    ),
                )
                for spec in missing
            ]
        )
        for topic, code, message in response.topic_errors:
            if code == _TOO_FEW_BROKERS:
                raise TooFewBrokersError(
                    f"Kafka has too few brokers to keep {topic} in {replicas} copies, so it was"
                    " not created: start those that are down. (HIFI_KAFKA_REPLICAS sets the"
                    " number of copies.)"
                )
            if code not in {0, _ALREADY_THERE}:
                raise KafkaUnavailableError(
                    f"Kafka refused to create the topic {topic}: {message or for_code(code)}"
                )
        await self._wait_for_leaders({spec.name for spec in missing})
        return [spec.name for spec in missing]

    async def delete(self, names: Iterable[str]) -> None:
        """Delete these topics, if they exist, with everything in them."""
        there = sorted(set(names) & await self.names())
        if not there:
            return
        response = await self._client.delete_topics(there)
        for topic, code in response.topic_error_codes:
            if code not in {0, _UNKNOWN_TOPIC}:
                raise KafkaUnavailableError(
                    f"Kafka refused to delete the topic {topic}: {for_code(code)}"
                )

    async def grow(self, name: str, partition_count: int) -> None:
        """Add Kafka partitions to a topic, up to this number."""
        response = await self._client.create_partitions({name: NewPartitions(partition_count)})
        for topic, code, message in response.topic_errors:
            if code != 0:
                raise KafkaUnavailableError(
                    f"Kafka refused to grow the topic {topic}: {message or for_code(code)}"
                )
        await self._wait_for_leaders({name})

    async def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Grant rights to a user, in addition to its present ones."""
        client = self._client._client  # noqa: SLF001 - it has no requests for rights
        rows = [
            (
                _RESOURCES[right.resource],
                right.name,
                _PREFIXED if right.is_prefix else _LITERAL,
                f"User:{user}",
                "*",
                _OPERATIONS[operation],
                _ALLOW,
            )
            for right in rights
            for operation in right.operations
        ]
        response = await client.send(client.get_random_node(), CreateGrantsRequest(rows))
        for code, message in response.creation_responses:
            if code != 0:
                why = message or for_code(code)
                raise KafkaUnavailableError(
                    f"Kafka refused to grant the user {user} its rights: {why}"
                )

    async def states(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Return the settings of these topics, if they exist."""
        wanted = sorted(set(names) & await self.names())
        if not wanted:
            return {}
        responses = await self._client.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name) for name in wanted]
        )
        settings = {
            resource[3]: {entry[0]: entry[1] for entry in resource[4]}
            for response in responses
            for resource in response.resources
        }
        return {
            topic["topic"]: TopicState(
                name=topic["topic"],
                partition_count=len(topic["partitions"]),
                replicas_min=min(len(p["replicas"]) for p in topic["partitions"]),
                in_sync_min=min(len(p["isr"]) for p in topic["partitions"]),
                settings=settings[topic["topic"]],
            )
            for topic in await self._client.describe_topics(wanted)
            # A broker that has only just learned of a topic reports no partitions.
            if topic["partitions"]
        }

    async def disks(self, names: Iterable[str]) -> list[BrokerDisk]:
        """Return the bytes of these topics on each broker's disks, and the free space there."""
        wanted = frozenset(names)
        client = self._client._client  # noqa: SLF001 - it has no requests for disks
        disks = []
        for broker in (await self._client.describe_cluster())["brokers"]:
            try:
                answer = await client.send(broker["node_id"], DescribeDisksRequest())
            except NotImplementedError as error:
                raise KafkaUnavailableError(
                    "This Kafka does not report how full its disks are: it is older than 3.3."
                ) from error
            if answer.error_code == ClusterAuthorizationFailedError.errno:
                raise KafkaRefusedError(
                    f"Kafka does not let {kafka_access().caller} ask how full its disks are: grant"
                    " Describe on the cluster, as in docs/kafka.md for the operator."
                )
            if answer.error_code:
                raise for_code(answer.error_code)
            disks.append(disk_of(broker["node_id"], answer, wanted))
        return disks

    async def _wait_for_leaders(self, names: set[str]) -> None:
        """Wait until each Kafka partition has a leader: only then can the topics be used."""
        for _ in range(round(_LEADERS_TIMEOUT_S / _LEADERS_LOOK_S)):
            topics = await self._client.describe_topics(sorted(names))
            if all(
                topic["error_code"] == 0 and all(p["leader"] >= 0 for p in topic["partitions"])
                for topic in topics
            ):
                return
            await asyncio.sleep(_LEADERS_LOOK_S)
        raise KafkaUnavailableError(
            f"Kafka has no leader for {', '.join(sorted(names))} after {_LEADERS_TIMEOUT_S:.0f} s:"
            " see the brokers' logs."
        )


class DescribeDisksResponse(Response):  # type: ignore[misc]
    """A broker's folders with their sizes; -1 for unknown ones."""

    API_KEY, API_VERSION = _DESCRIBE_LOG_DIRS, 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "folders",
            CompactArray(
                ("error_code", Int16),
                ("folder", _TEXT),
                (
                    "topics",
                    CompactArray(
                        ("topic", _TEXT),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("size", Int64),
                                ("lag", Int64),
                                ("is_moving_in", Boolean),
                                _TAGS,
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                ("total_bytes", Int64),
                ("free_bytes", Int64),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _DescribeDisks4(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = _DESCRIBE_LOG_DIRS, 4, True
    RESPONSE_TYPE = DescribeDisksResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
        _TAGS,
    )


class DescribeDisksRequest(Request[_DescribeDisks4]):  # type: ignore[misc]
    """Asks a broker for everything on its disks (KIP-827)."""

    API_KEY = _DESCRIBE_LOG_DIRS

    def build(self, struct: type[_DescribeDisks4]) -> _DescribeDisks4:
        return struct(None, {})


def disk_of(broker: int, answer: DescribeDisksResponse, wanted: frozenset[str]) -> BrokerDisk:
    """Return the bytes of these topics in all folders of a broker, and its disk space."""
    topic_bytes: Counter[str] = Counter()
    totals, free = [], []
    for _, _, topics, total_bytes, free_bytes, _ in answer.folders:
        totals.append(total_bytes)
        free.append(free_bytes)
        for topic, partitions, _ in topics:
            if topic in wanted:
                topic_bytes[topic] += sum(size for _, size, *_ in partitions)
    is_told = bool(totals) and min(totals + free) >= 0
    return BrokerDisk(
        broker=broker,
        total_bytes=sum(totals) if is_told else None,
        free_bytes=sum(free) if is_told else None,
        topic_bytes=dict(topic_bytes),
    )


class CreateGrantsRequest(CreateAclsRequest):  # type: ignore[misc]
    """Creates several rights at once, which the client's own request cannot do."""

    def __init__(self, rows: list[tuple[int, str, int, str, str, int, int]]) -> None:
        self._rows = rows

    def build(self, struct: type[RequestStruct]) -> RequestStruct:
        return struct(self._rows)


class ApiVersionsResponse(Response):  # type: ignore[misc]
    """A broker's abilities; the cluster's features are in a tag."""

    API_KEY, API_VERSION = _API_VERSIONS, 3
    SCHEMA = Schema(
        ("error_code", Int16),
        ("kinds", CompactArray(("kind", Int16), ("min", Int16), ("max", Int16), _TAGS)),
        ("throttle_time_ms", Int32),
        _TAGS,
    )


class _ApiVersions3(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = _API_VERSIONS, 3, True
    RESPONSE_TYPE = ApiVersionsResponse
    SCHEMA = Schema(("software", _TEXT), ("version", _TEXT), _TAGS)

    def parse_response_header(self, answer: BytesIO) -> Any:
        # Only this answer has an old header, as a client does not know the broker's version yet.
        return ResponseHeader_v0.decode(answer)


class ApiVersionsRequest(Request[_ApiVersions3]):  # type: ignore[misc]
    """Asks a broker for its abilities."""

    API_KEY = _API_VERSIONS

    def build(self, struct: type[_ApiVersions3]) -> _ApiVersions3:
        return struct("hifi", "hifi", {})


def finalized_features(response: ApiVersionsResponse) -> dict[str, int] | None:
    """Return the level of each finalized feature; None if the broker reports an error."""
    if response.error_code:
        return None
    raw = response.tags.get(_FINALIZED_FEATURES_TAG)
    return {name: level for name, level, *_ in _FEATURES.decode(BytesIO(raw))} if raw else {}
