"""Moves leaders of Kafka partitions in order, like an operator, by Kafka's admin protocol.

The preferred leader is the first of a Kafka partition's replicas. So a move is a reassignment to
the same brokers in another order, which copies nothing, and the election of the preferred leader.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import choice
from typing import TypeAlias

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from shared.runtime.kafka.clients import KafkaClient, new_client, running
from shared.runtime.setup_error import KafkaUnavailableError

# aiokafka lacks ElectLeaders (KIP-460), whose newest version is 2.
_ELECT_LEADERS = 43
_PREFERRED = 0
# Kafka's codes for an election that changes nothing, and for a leader that is out of sync.
_NOT_NEEDED, _NOT_AVAILABLE = 84, 80
# The asked broker may need a frozen controller; then the others elect a new one.
_REQUEST_MS = 2_000
_LOOK_S = 0.1
_TAGS = ("tags", TaggedFields)
_TEXT = CompactString("utf-8")


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """A Kafka partition, its leader, and the brokers with copies, the preferred leader first."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


# By Kafka partition, the new order of its replicas, whose first is to lead.
_Orders: TypeAlias = Mapping[PartitionLeader, tuple[int, ...]]
_Wanted: TypeAlias = Callable[[Sequence[PartitionLeader], Collection[int]], _Orders]


async def all_led(client: KafkaClient, *, but: Collection[int] = ()) -> list[PartitionLeader]:
    """Return every Kafka partition, as known by a broker that is not in `but`."""
    node = choice([one.nodeId for one in client.cluster.brokers() if one.nodeId not in but])
    answer = (await client.send(node, MetadataRequest(None))).to_object()
    return [
        PartitionLeader(
            topic["topic"],
            one["partition"],
            one["leader"],
            tuple(one["replicas"]),
            frozenset(one["isr"]),
        )
        for topic in answer["topics"]
        for one in topic["partitions"]
    ]


async def move_leaders(servers: str, *, but: Collection[int] = (), patience_s: float) -> int:
    """Give every Kafka partition another leader that is not in `but`; return how many have one."""
    return await _until_elected(servers, but, patience_s, moved_orders)


async def elect_preferred(servers: str, *, but: Collection[int] = (), patience_s: float) -> int:
    """Have preferred replicas lead again; return how many Kafka partitions had another leader."""
    return await _until_elected(servers, but, patience_s, preferred_orders)


def moved_orders(led: Sequence[PartitionLeader], but: Collection[int]) -> _Orders:
    """Return the order of replicas that each is to have: the next one in sync comes first."""
    orders = {}
    for one in led:
        at = one.replicas.index(one.leader) if one.leader in one.replicas else -1
        turned = (*one.replicas[at + 1 :], *one.replicas[: at + 1])
        able = [each for each in turned if each in one.in_sync and each not in but]
        if able and able[0] != one.leader:
            orders[one] = (able[0], *(each for each in turned if each != able[0]))
    return orders


def preferred_orders(led: Sequence[PartitionLeader], but: Collection[int]) -> _Orders:
    """Return the order of replicas where the leader is not the preferred one."""
    return {
        one: one.replicas
        for one in led
        if one.leader != one.replicas[0]
        and one.replicas[0] in one.in_sync
        and one.replicas[0] not in but
    }


async def _until_elected(
    servers: str,
    but: Collection[int],
    patience_s: float,
    wanted: _Wanted,
) -> int:
    """Ask one broker after the other until it is done, or patience ends."""
    until_s = asyncio.get_running_loop().time() + patience_s
    async with running(new_client(servers, request_timeout_ms=_REQUEST_MS), servers) as client:
        orders = wanted(await all_led(client, but=but), but)
        new = {(one.topic, one.partition): order[0] for one, order in orders.items()}
        while True:
            try:
                await _elect(client, orders, but)
            except (KafkaError, KafkaUnavailableError):
                if asyncio.get_running_loop().time() > until_s:
                    raise
            led = await all_led(client, but=but)
            done = sum(new.get((one.topic, one.partition)) == one.leader for one in led)
            if done == len(new) or asyncio.get_running_loop().time() > until_s:
                return done
            await asyncio.sleep(_LOOK_S)


async def _elect(client: KafkaClient, orders: _Orders, but: Collection[int]) -> None:
    node = choice([one.nodeId for one in client.cluster.brokers() if one.nodeId not in but])
    anew = {one: order for one, order in orders.items() if order != one.replicas}
    if anew:
        rows: list[tuple[str, list[tuple[int, list[int], dict[int, bytes]]], dict[int, bytes]]]
        rows = [
            (topic, [(one.partition, list(anew[one]), {}) for one in parts], {})
            for topic, parts in _by_topic(anew)
        ]
        answer = await client.send(node, AlterPartitionReassignmentsRequest(_REQUEST_MS, rows, {}))
        _require(answer.error_code)
    if orders:
        parts_of = [(topic, [one.partition for one in parts]) for topic, parts in _by_topic(orders)]
        elected = await client.send(node, _ElectLeadersRequest(parts_of))
        _require(elected.error_code)


def _require(code: int) -> None:
    if code not in {0, _NOT_NEEDED, _NOT_AVAILABLE}:
        raise for_code(code)


def _by_topic(led: Iterable[PartitionLeader]) -> Iterable[tuple[str, list[PartitionLeader]]]:
    found: dict[str, list[PartitionLeader]] = defaultdict(list)
    for one in led:
        found[one.topic].append(one)
    return found.items()


class _ElectLeadersResponse(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = _ELECT_LEADERS, 2
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "topics",
            CompactArray(
                ("topic", _TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32), ("error_code", Int16), ("message", _TEXT), _TAGS
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _ElectLeaders2(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = _ELECT_LEADERS, 2, True
    RESPONSE_TYPE = _ElectLeadersResponse
    SCHEMA = Schema(
        ("election", Int8),
        ("topics", CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
        ("timeout_ms", Int32),
        _TAGS,
    )


class _ElectLeadersRequest(Request[_ElectLeaders2]):  # type: ignore[misc]
    """A request to elect the preferred leader of each Kafka partition."""

    API_KEY = _ELECT_LEADERS

    def __init__(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        self._topics = topics

    def build(self, struct: type[_ElectLeaders2]) -> _ElectLeaders2:
        topics: list[tuple[str, list[int], dict[int, bytes]]]
        topics = [(topic, list(partitions), {}) for topic, partitions in self._topics]
        return struct(_PREFERRED, topics, _REQUEST_MS, {})
