"""Commits each lane's position to a consumer group, where ordinary Kafka lag tools see it.

Delivery keeps positions in marks and the retrier in the group of its leases, where no lag tool
looks. So they are also committed to groups that nobody joins. The audit reads these, to distinguish
events that a lane has not reached yet from lost ones. A lane without a position of its own reads
them too.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from threading import Lock
from typing import Any, Self
from zlib import crc32

import structlog
from aiokafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    KafkaError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from shared.event.record import KafkaPartition, Position
from shared.event.topics import lane_group
from shared.runtime.kafka.clients import new_client, start_client
from shared.runtime.kafka.refusals import missing_right
from shared.runtime.kafka.spark_options import by_topic
from shared.runtime.setup_error import KafkaRefusedError, KafkaUnavailableError

log = structlog.get_logger()

# Kafka's values for a commit by a tool that is not a member.
_NO_GENERATION, _NO_MEMBER = -1, ""
_DEFAULT_RETENTION = -1
# By default Kafka deletes positions of a group without members after a week without a commit.
_TELL_AGAIN_S = 3_600.0
_TELL_S, _ASK_AGAIN_S = 0.5, 0.1
# The maximum number of lanes in a commit; commits run twice a second. A thousand lanes take 1 to
# 2 s, and a part of a core.
_LANES_MAX = 500
# Kafka answers requests on a connection one by one, and each group's commit waits for its copies.
_SIDE_BY_SIDE = 16
# Kafka answers in milliseconds; an unreachable one must not delay the end of the process.
_LAST_WORD_S = 3.0
# The pause after a refusal, which only a person can fix.
_REFUSED_PAUSE_S = 30.0
# A process plans nothing while it asks for the positions of new lanes. Answers come within
# milliseconds, but brokers may be far away or frozen, so it stops waiting and asks again later.
_ANSWERS_S, _ASK_TIMEOUT_S, _ASK_PAUSE_S = 0.5, 10.0, 3.0


class LanePositions:
    """Takes positions from any thread, and commits the newest of each lane on request."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._lock = Lock()
        self._newest: dict[str, Position] = {}
        # The last position of each lane that Kafka accepted, and when.
        self._told: dict[str, tuple[Position, float]] = {}
        # The positions of the running commit.
        self._under_way: dict[str, Position] = {}
        self._telling = asyncio.Lock()
        self._groups: LaneGroups | None = None
        self._asking: asyncio.Task[None] | None = None
        self._answers: dict[str, Position] = {}
        self._ask_again_s, self._why_unknown = 0.0, ""
        # When to try again after Kafka refused us, or refused the commit of a lane.
        self._again_s = 0.0
        self._lane_again_s: dict[str, float] = {}

    def enter(self, lane: str, position: Position) -> None:
        """Enter a lane's position, if the lane has passed anything.

        The position of an idle lane is committed again before Kafka forgets it.
        """
        before, told_s = self._told.get(lane, (None, 0.0))
        is_known = position == before and time.monotonic() - told_s < _TELL_AGAIN_S
        if position and not is_known:
            with self._lock:
                self._newest[lane] = position

    async def last(self, lanes: Collection[str]) -> Mapping[str, Position]:
        """Return the last positions of lanes that are new here; absent until Kafka answers.

        The caller waits for a moment, and asks again.
        """
        unknown = set(lanes) - self._answers.keys()
        is_asking = self._asking is not None and not self._asking.done()
        if unknown and not is_asking and time.monotonic() >= self._ask_again_s:
            self._asking = asyncio.create_task(self._ask(sorted(unknown)))
            await asyncio.wait([self._asking], timeout=_ANSWERS_S)
        return {lane: self._answers.pop(lane) for lane in lanes if lane in self._answers}

    async def _ask(self, lanes: Collection[str]) -> None:
        async def ask(lane: str) -> None:
            if (position := await groups.position(lane)) is not None:
                self._answers[lane] = position

        why = ""
        try:
            async with (
                asyncio.timeout(_ASK_TIMEOUT_S),
                LaneGroups(self._bootstrap_servers) as groups,
            ):
                await asyncio.gather(*map(ask, lanes))
        except (KafkaUnavailableError, KafkaError, OSError) as error:
            why = str(error) or repr(error)
        if not self._answers.keys() >= set(lanes):
            self._ask_again_s = time.monotonic() + _ASK_PAUSE_S
        if why and why != self._why_unknown:
            log.warning("lane.position_not_known", error=why)
        self._why_unknown = why

    async def keep_telling(self) -> None:
        """Commit positions repeatedly until cancelled."""
        while True:
            await self.commit()
            await asyncio.sleep(_TELL_S)

    async def commit(self) -> None:
        """Commit due positions; refused ones are tried again the next time."""
        # The lane that has waited longest comes first.
        due = (lane for lane in list(self._newest) if not self._is_paused(lane))
        await self._commit(islice(due, _LANES_MAX))

    def _is_paused(self, lane: str) -> bool:
        return time.monotonic() < max(self._again_s, self._lane_again_s.get(lane, 0.0))

    async def tell(self, lanes: Collection[str] | None = None) -> None:
        """Commit these lanes now, or all lanes, within the time that Kafka may need to answer."""
        wanted = None if lanes is None else set(lanes)
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                while left := [
                    lane for lane in list(self._newest) if wanted is None or lane in wanted
                ]:
                    if not await self._commit(left):
                        if all(map(self._is_paused, self._newest.keys() & left)):
                            break
                        await asyncio.sleep(_ASK_AGAIN_S)
        except TimeoutError:
            log.info("lane.position_not_told", error="no answer from Kafka")

    def forget(self, lanes: Iterable[str]) -> None:
        """Forget lanes that other processes may already commit: our positions would be older."""
        with self._lock:
            for lane in lanes:
                for known in (self._newest, self._under_way, self._told, self._lane_again_s):
                    known.pop(lane, None)

    async def _commit(self, lanes: Iterable[str]) -> bool:
        """Commit these lanes; return False if Kafka did not accept all of them."""
        # One commit at a time: an older position must not follow a newer one.
        async with self._telling:
            with self._lock:
                newest = self._newest
                self._under_way = {name: newest.pop(name) for name in lanes if name in newest}
            if not self._under_way:
                return True
            try:
                if self._groups is None:
                    self._groups = await LaneGroups(self._bootstrap_servers).__aenter__()
                refused = await self._tell_side_by_side(self._groups)
            except (KafkaUnavailableError, KafkaError, OSError) as error:
                if isinstance(error, KafkaRefusedError):
                    # A person must fix it, which takes longer than half a second.
                    self._again_s = time.monotonic() + _REFUSED_PAUSE_S
                    log.warning("lane.position_not_told", error=str(error))
                else:
                    log.info("lane.position_not_told", error=repr(error))
                await self.close()
                return False
            finally:
                with self._lock:
                    # Commit it the next time, after the others, unless there is a newer one.
                    for lane, position in self._under_way.items():
                        self._newest.setdefault(lane, position)
                    self._under_way = {}
            self._pause(refused)
            return not refused

    def _pause(self, refused: Mapping[str, BrokerResponseError]) -> None:
        """Pause lanes with a missing right, until a person may have noticed.

        Lanes that fail for another reason are tried again the next time.
        """
        rights = {
            lane: missing_right(self._bootstrap_servers, why) for lane, why in refused.items()
        }
        again_s = time.monotonic() + _REFUSED_PAUSE_S
        self._lane_again_s |= {lane: again_s for lane, right in rights.items() if right}
        for right in sorted(set(filter(None, rights.values()))):
            log.warning("lane.position_not_told", error=right)
        for why in sorted({repr(refused[lane]) for lane, right in rights.items() if not right}):
            log.info("lane.position_not_told", error=why)

    async def _tell_side_by_side(self, groups: "LaneGroups") -> dict[str, BrokerResponseError]:
        """Commit lanes in parallel, so that no lane delays another; return refused ones' errors."""
        lanes = iter(list(self._under_way))
        refused: dict[str, BrokerResponseError] = {}

        async def tell_one_by_one() -> None:
            for lane in lanes:
                if (position := self._under_way.get(lane)) is not None:
                    try:
                        await groups.commit(lane, position)
                    except RequestTimedOutError:
                        raise
                    except BrokerResponseError as error:
                        refused[lane] = error
                        continue
                    # Skip lanes that were forgotten meanwhile.
                    self._lane_again_s.pop(lane, None)
                    if self._under_way.pop(lane, None) is not None:
                        self._told[lane] = position, time.monotonic()

        ends = await asyncio.gather(
            *(tell_one_by_one() for _ in range(_SIDE_BY_SIDE)), return_exceptions=True
        )
        for error in filter(None, ends):
            raise error
        return refused

    async def tell_last(self) -> None:
        """Commit the lanes' last positions, so that their last outcomes do not stay unconfirmed."""
        try:
            await self.tell()
        finally:
            await self.close()

    async def close(self) -> None:
        groups, self._groups = self._groups, None
        if groups is not None:
            await groups.__aexit__()


def _refused_names(code: int, group: str, position: Position) -> list[str]:
    """Return the names that lack a right, because Kafka only reports that some right is missing."""
    if code == GroupAuthorizationFailedError.errno:
        return [group]
    if code == TopicAuthorizationFailedError.errno:
        return sorted({where.topic for where in position})
    return []


class LaneGroups:
    """The consumer groups that show the lanes' positions."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client = new_client(bootstrap_servers)
        self._coordinators: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        await start_client(self._client, self._bootstrap_servers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    async def commit(self, lane: str, position: Position) -> None:
        topics = [
            (topic, [(int(number), offset, "") for number, offset in offsets.items()])
            for topic, offsets in by_topic(position).items()
        ]
        group = lane_group(lane)
        request = OffsetCommitRequest(group, _NO_GENERATION, _NO_MEMBER, _DEFAULT_RETENTION, topics)
        response = await self._ask(group, request)
        for _, partitions in response.topics:
            for _, code, *_ in partitions:
                if code:
                    self._coordinators.pop(group, None)
                    raise for_code(code)(*_refused_names(code, group, position))

    async def position(self, lane: str) -> dict[KafkaPartition, int] | None:
        """Return a lane's last committed position; None while it is unknown.

        Before the very first commit, Kafka has no topic for positions.
        """
        group = lane_group(lane)
        try:
            response = await self._ask(group, OffsetFetchRequest(group, None))
            if getattr(response, "error_code", 0):
                raise for_code(response.error_code)
        except GroupAuthorizationFailedError as error:
            raise KafkaRefusedError(
                missing_right(self._bootstrap_servers, GroupAuthorizationFailedError(group)) or ""
            ) from error
        except KafkaError:
            self._coordinators.pop(group, None)
            return None
        return {
            KafkaPartition(topic, number): offset
            for topic, partitions in response.topics
            for number, offset, *_ in partitions
            if offset >= 0
        }

    async def _ask(self, group: str, request: Any) -> Any:
        # The client has a connection to a broker for each number; a lane's number never changes.
        number = crc32(group.encode()) % _SIDE_BY_SIDE
        if group not in self._coordinators:
            node = self._client.get_random_node()
            answer = await self._client.send(node, FindCoordinatorRequest(group, 0), group=number)
            if answer.error_code:
                raise for_code(answer.error_code)
            self._coordinators[group] = answer.coordinator_id
        return await self._client.send(self._coordinators[group], request, group=number)
