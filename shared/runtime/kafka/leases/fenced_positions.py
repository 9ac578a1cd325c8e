"""Commits lanes' positions while their slots are held: Kafka refuses who has lost them (ADR 0058).

All that is committed at once is one transaction, and its last part is a commit to the group of the
leases as the member that we are. Either Kafka still knows that member and every position counts, or
none does (KIP-447). Who takes a lane over asks for what is certain, so it waits for what the last
owner has begun and not ended.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Self

import structlog
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from shared.event.record import KafkaPartition, Position
from shared.event.topics import CONFIG, lane_group
from shared.runtime.kafka.clients import kafka_errors, new_client, start_client
from shared.runtime.kafka.leases.member import LeaseMember, Standing
from shared.runtime.kafka.leases.requests import FencedCommitRequest, StableFetchRequest
from shared.runtime.kafka.spark_options import by_topic
from shared.runtime.setup_error import OperatorError

log = structlog.get_logger()

# What a frozen owner has left open holds up who takes over for so long, and for up to 10 s more
# until Kafka looks (transaction.abort.timed.out.transaction.cleanup.interval.ms). It is no longer
# than the session that they wait for anyway.
_TRANSACTION_TIMEOUT_MS = 10_000
# While a group is joined Kafka is a generation ahead of us for a moment.
_SETTLE_S = 5.0
_ASK_AGAIN_S = 0.02
_GROUP, _TRANSACTION = 0, 1
# COORDINATOR_NOT_AVAILABLE, as before the first transaction ever, and NOT_COORDINATOR.
_MOVED = {15, 16}
# COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT end by themselves.
_LATER = {14, 51, 88, *_MOVED}
# Longer than a transaction may be left open.
_PATIENCE_S = 30.0
_NOBODY = (-1, "")
# The commit to the group of the leases must name something that exists; nobody reads it.
_NOTHING = [(CONFIG, [(0, 0)])]


class NotOwnerError(OperatorError):
    """Others may have the lanes by now; nothing was committed."""


class FencedPositions:
    """Where the lanes are whose slots a member holds."""

    def __init__(self, bootstrap_servers: str, member: LeaseMember) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._member = member
        self._client = new_client(bootstrap_servers, client_id="hifi-positions")
        # Each process has a name of its own: nobody else needs to end its transactions.
        self._name = f"{member.standing.group}.{uuid.uuid4()}"
        self._producer: tuple[int, int] | None = None
        self._coordinators: dict[tuple[str, int], int] = {}
        # A producer has one transaction at a time.
        self._committing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await start_client(self._client, self._bootstrap_servers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    async def position(
        self, lane: str, places: Collection[KafkaPartition]
    ) -> dict[KafkaPartition, int]:
        """How far a lane is in those places where it has ever been said to be.

        Who has begun to say otherwise is waited for.
        """
        group = lane_group(lane)
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        with kafka_errors(self._bootstrap_servers):
            answer = await self._ask(group, _GROUP, StableFetchRequest(group, list(topics.items())))
        return {
            KafkaPartition(topic, number): offset
            for topic, parts, _ in answer.topics
            for number, offset, *_ in parts
            if offset >= 0
        }

    async def commit(self, positions: Mapping[str, Position]) -> None:
        """Enter how far these lanes are, all or none; NotOwnerError if one is not ours."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _SETTLE_S
        async with self._committing:
            with kafka_errors(self._bootstrap_servers):
                while True:
                    lost = sorted(lane for lane in positions if not self._member.holds(lane))
                    if lost:
                        raise NotOwnerError(f"Others have {', '.join(lost)} by now.")
                    try:
                        return await self._transact(positions, self._member.standing)
                    except UnknownMemberIdError as error:
                        raise NotOwnerError("Kafka has given our lanes to others.") from error
                    except IllegalGenerationError as error:
                        if loop.time() > until_s:
                            raise NotOwnerError("The lanes were shared out without us.") from error
                        await asyncio.sleep(_ASK_AGAIN_S)

    async def _transact(self, positions: Mapping[str, Position], standing: Standing) -> None:
        name = self._name
        if self._producer is None:
            # Ends what an attempt of ours may have left open.
            begun = await self._ask(
                name, _TRANSACTION, InitProducerIdRequest(name, _TRANSACTION_TIMEOUT_MS)
            )
            self._producer = begun.producer_id, begun.producer_epoch
        producer = self._producer
        try:
            groups = {lane_group(lane) for lane in positions} | {standing.group}
            await _all(
                self._ask(name, _TRANSACTION, AddOffsetsToTxnRequest(name, *producer, group))
                for group in sorted(groups)
            )
            await _all(
                self._enter_lane(lane, producer, position) for lane, position in positions.items()
            )
            # Last: who takes over after this was allowed finds the others begun, and waits for us.
            member = standing.generation, standing.member_id
            await self._enter(standing.group, producer, member, _NOTHING)
            await self._end(producer, is_valid=True)
        except BaseException:
            self._producer = None
            with suppress(KafkaError):
                await self._end(producer, is_valid=False)
            raise

    async def _enter_lane(self, lane: str, producer: tuple[int, int], position: Position) -> None:
        try:
            await self._enter(lane_group(lane), producer, _NOBODY, _offsets(position))
        except UnknownTopicOrPartitionError:
            # Its stream was deleted meanwhile: that must not hold up the positions of the others.
            log.info("lane.position_of_nothing", lane=lane)

    async def _enter(
        self,
        group: str,
        producer: tuple[int, int],
        member: tuple[int, str],
        offsets: list[tuple[str, list[tuple[int, int]]]],
    ) -> None:
        request = FencedCommitRequest(self._name, group, producer, member, offsets)
        await self._ask(group, _GROUP, request)

    async def _end(self, producer: tuple[int, int], *, is_valid: bool) -> None:
        await self._ask(self._name, _TRANSACTION, EndTxnRequest(self._name, *producer, is_valid))

    async def _ask(self, key: str, kind: int, request: Any) -> Any:
        """What the coordinator says of a request, as soon as what it must wait for has ended."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                if (key, kind) in self._coordinators:
                    answer = await self._client.send(self._coordinators[key, kind], request)
                else:
                    node = self._client.get_random_node()
                    answer = await self._client.send(node, FindCoordinatorRequest(key, kind))
                    if not answer.error_code:
                        self._coordinators[key, kind] = answer.coordinator_id
                        continue
                problem = _problem(answer)
                if not problem:
                    return answer
                if problem not in _LATER:
                    raise for_code(problem)
                if problem in _MOVED:
                    self._coordinators.pop((key, kind), None)
                await asyncio.sleep(_ASK_AGAIN_S)


async def _all(asked: Iterable[Awaitable[None]]) -> None:
    """Wait for every answer, as nothing may be under way any more when a transaction ends."""
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer


def _offsets(position: Position) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic, [(int(number), offset) for number, offset in offsets.items()])
        for topic, offsets in by_topic(position).items()
    ]


def _problem(answer: Any) -> int:
    """The first thing that Kafka says no to; 0 if there is none."""
    codes = [getattr(answer, "error_code", 0)]
    codes += [code for _, parts, _ in getattr(answer, "topics", ()) for *_, code, _ in parts]
    return next(filter(None, codes), 0)
