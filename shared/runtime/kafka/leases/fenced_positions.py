"""Keeps the positions of a lease group's members in the group itself.

Each commit names the member and its generation, so Kafka refuses positions of a member that it has
given up. The commit's metadata has the offset up to which events may have been sent.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from shared.event.record import KafkaPartition
from shared.runtime.kafka.clients import KafkaClient, new_client, start_client
from shared.runtime.kafka.leases.member import Standing

_DEFAULT_RETENTION = -1
# While the group changes, its members' generation is wrong for some milliseconds.
_UNSETTLED = (IllegalGenerationError, RebalanceInProgressError)
_SETTLED_WITHIN_S, _AGAIN_S = 3.0, 0.05


# The value for an unknown end.
WHATEVER = 2**62


class Reach(NamedTuple):
    """A member's position in a Kafka partition."""

    # Events before this offset are done.
    at: int
    # Events before this offset may have been sent.
    until: int
    # The job that may have sent them; 0 for none.
    job: int = 0

    @property
    def word(self) -> str:
        """The metadata of the commit."""
        return f"{self.until},{self.job}"


class FencedPositions:
    """The positions of one lease group. Its client is created at its first use."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._group = group
        self._client: KafkaClient | None = None
        self._coordinator: int | None = None
        self._opening = asyncio.Lock()

    async def read(self) -> dict[KafkaPartition, Reach]:
        """Read the positions of all members, past and present."""
        answer = await self._ask(lambda: OffsetFetchRequest(self._group, None))
        if code := getattr(answer, "error_code", 0):
            self._coordinator = None
            raise for_code(code)(self._group)
        rows = [(topic, *row) for topic, partitions in answer.topics for row in partitions]
        for topic, number, *_, code in rows:
            if code:
                # Without a position, the partition would be sent again from its beginning.
                raise for_code(code)(f"{topic}, {number}")
        return {
            KafkaPartition(topic, number): _reach_of(offset, metadata)
            for topic, number, offset, metadata, *_ in rows
            if offset >= 0
        }

    async def write(
        self, reaches: Mapping[KafkaPartition, Reach], standing: Callable[[], Standing | None]
    ) -> None:
        """Commit positions; raise a KafkaError if Kafka does not accept them from us.

        If we are no longer in the group, the positions already belong to another member.
        """
        if not reaches:
            return
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for (topic, number), reach in reaches.items():
            topics.setdefault(topic, []).append((number, reach.at, reach.word))

        def request() -> OffsetCommitRequest:
            if (ours := standing()) is None:
                raise UnknownMemberIdError
            _, member_id, generation = ours
            return OffsetCommitRequest(
                self._group, generation, member_id, _DEFAULT_RETENTION, list(topics.items())
            )

        until_s = asyncio.get_running_loop().time() + _SETTLED_WITHIN_S
        while error := _refusal(await self._ask(request)):
            if not isinstance(error, _UNSETTLED):
                self._coordinator = None
                raise error
            if asyncio.get_running_loop().time() > until_s:
                raise error
            await asyncio.sleep(_AGAIN_S)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.stop()

    async def _ask(self, request: Callable[[], Any]) -> Any:
        async with self._opening:
            if self._client is None:
                client = new_client(self._bootstrap_servers, client_id="hifi-positions")
                self._client = await start_client(client, self._bootstrap_servers)
            if self._coordinator is None:
                node = self._client.get_random_node()
                answer = await self._client.send(node, FindCoordinatorRequest(self._group, 0))
                if answer.error_code:
                    raise for_code(answer.error_code)(self._group)
                self._coordinator = answer.coordinator_id
        try:
            return await self._client.send(self._coordinator, request())
        except (KafkaError, OSError):
            self._coordinator = None
            raise


def _refusal(answer: Any) -> KafkaError | None:
    codes = [code for _, partitions in answer.topics for _, code, *_ in partitions if code]
    return for_code(codes[0])() if codes else None


def _reach_of(at: int, metadata: str | None) -> Reach:
    until, _, job = (metadata or "").partition(",")
    if until.isdigit() and job.isdigit():
        return Reach(at, int(until), int(job))
    # A person has set the position with one of Kafka's tools.
    return Reach(at, WHATEVER)
