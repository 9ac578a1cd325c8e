"""Keeps a process's share of a fixed number of slots, by Kafka's group coordination (ADR 0058).

Each member reports the slots that it still owns when it joins, and the group's leader assigns only
slots that nobody owns. So work continues while the group changes, and an owner ends its work on a
slot before the slot moves. A member that hears nothing from Kafka for a session drops all its
slots, because the others then consider it dead.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
import structlog
from aiokafka.errors import (
    IllegalGenerationError,
    InvalidSessionTimeoutError,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import new_client, start_client
from shared.runtime.setup_error import KafkaUnavailableError, SetupError
from shared.slots import SLOT_COUNT, may_have, slot_of, spelled

log = structlog.get_logger()

# A member that is silent for this long counts as dead. Its work must run elsewhere within a minute,
# and the move needs half of that. Kafka allows less than 6 s only with another
# group.min.session.timeout.ms.
SESSION_S = 20.0
# When a slot moves to another member, its running work may take this long to end.
DRAIN_S = 10.0
# A change of the group reaches each member with its next heartbeat, and a moving slot needs two
# changes: 1 s in all. Kafka answers thousands of heartbeats a second.
_BEAT_S = 0.5
# A restarting Kafka is down for seconds, well within a session.
_PAUSE_S, _PAUSE_S_MAX = 0.25, 3.0
# Kafka answers a join within a session, when all members have joined; later the join is lost.
_JOIN_GRACE_S = 5.0
# Leaving only saves the others from waiting for the end of the session.
_GOODBYE_S = 3.0
# Not "consumer", so that tools which reset or show consumers ignore this group.
_PROTOCOL = "hifi"
_DYNAMIC = None
# macOS has this clock under the other name.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_encode = msgspec.json.encode
_Ask: TypeAlias = Callable[[Any], Awaitable[Any]]


def clock_s() -> float:
    """Return a time that goes on while the machine is suspended, unlike the event loop's."""
    return time.clock_gettime(_CLOCK)


class SlotWork(Protocol):
    """The work for the slots that a process owns. It is called in the event loop."""

    def begin(self, slots: frozenset[int]) -> None:
        """Start work on these slots: nobody else works on them any more."""

    async def finish(self, slots: frozenset[int]) -> None:
        """Let running work end, and begin nothing more; called for each slot separately.

        Another member may get the slots when the call returns. If it takes too long, it is
        cancelled, and the rest is dropped.
        """

    def drop(self, slots: frozenset[int]) -> None:
        """Stop work at once: other members may already have these slots."""


class Standing(NamedTuple):
    """A member's identity in Kafka."""

    group: str
    member_id: str
    generation: int


class LeaseMember:
    """One process's membership. It keeps working on its slots while the group changes."""

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        work: SlotWork,
        *,
        slot_count: int = SLOT_COUNT,
        session_s: float = SESSION_S,
        drain_s: float = DRAIN_S,
    ) -> None:
        self.owned: frozenset[int] = frozenset()
        # Whether the group has confirmed our slots, even if there are none.
        self.is_told = False
        self._bootstrap_servers = bootstrap_servers
        self._work = work
        self._slot_count = slot_count
        self._session_s, self._drain_s = session_s, drain_s
        self._standing = Standing(group, JoinGroupRequest.UNKNOWN_MEMBER_ID, -1)
        # The owned slots that are being released.
        self._finishing: frozenset[int] = frozenset()
        # The slots released since the last log line about releases.
        self._given_up: frozenset[int] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        # Set when we must join again to report a change to the group.
        self._news = asyncio.Event()
        self._must_join = True
        self._is_leaving = False
        self._lapses: asyncio.TimerHandle | None = None
        # When the lease lapses, by `clock_s`: after a suspension the timer fires late.
        self._lapses_s = 0.0
        # The time until which we accept no slots, by the same clock.
        self._waits_until_s = 0.0

    @property
    def standing(self) -> Standing:
        return self._standing

    @property
    def ours_until_ms(self) -> int:
        """The wall time until which nobody else gets our slots, even if we fall silent."""
        return now_ms() + round(1000 * self.left_s) if self.left_s else 0

    @property
    def left_s(self) -> float:
        """How long nobody else gets our slots, even if we fall silent."""
        return self._lapses_s - clock_s() if self.owned else 0.0

    def share_out(self, slot_count: int) -> None:
        """Divide this many slots from now on, whenever this member leads the group."""
        if slot_count != self._slot_count:
            self._slot_count = slot_count
            self._join_again()

    def slot_of(self, name: str) -> int:
        return slot_of(name, self._slot_count)

    def owns(self, name: str) -> bool:
        """Return whether we own the slot of this name."""
        return self.slot_of(name) in self.owned

    async def run(self, stop: asyncio.Event) -> None:
        """Be a member until `stop` is set; then finish all work, release all slots, and leave."""
        keeping = asyncio.create_task(self._keep())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                keeping.result()
            self._is_leaving = True
            self._give_up(self.owned)
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self._let_go("it ends")
            for task in (keeping, stopping):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await self._say_goodbye()

    async def _keep(self) -> None:
        """Stay in touch with Kafka; reconnect after errors."""
        loop = asyncio.get_running_loop()
        pause_s = _PAUSE_S
        while True:
            began_s = loop.time()
            try:
                await self._stay_in_touch()
            except InvalidSessionTimeoutError as error:
                raise SetupError(
                    f"Kafka refuses a lease of {self._session_s:g} s: set one between its"
                    " group.min.session.timeout.ms and group.max.session.timeout.ms."
                ) from error
            except (KafkaUnavailableError, KafkaError, OSError, TimeoutError) as error:
                # If it lasts, a later log line reports that the lease is lost.
                log.info("lease.no_contact", group=self._standing.group, error=repr(error))
            pause_s = min(2 * pause_s, _PAUSE_S_MAX) if loop.time() - began_s < 1 else _PAUSE_S
            await asyncio.sleep(pause_s)

    async def _stay_in_touch(self) -> None:
        async with _coordinator(
            self._bootstrap_servers, self._standing.group, session_s=self._session_s
        ) as ask:
            while True:
                try:
                    await (self._join if self._must_join else self._beat)(ask)
                except RebalanceInProgressError:
                    self._must_join = True
                except (UnknownMemberIdError, IllegalGenerationError):
                    # The others considered us dead: we may have been frozen.
                    self._let_go("Kafka has given it to others")
                    self._standing = self._standing._replace(
                        member_id=JoinGroupRequest.UNKNOWN_MEMBER_ID
                    )

    async def _beat(self, ask: _Ask) -> None:
        with suppress(TimeoutError):
            # Not `wait_for`: before Python 3.12 it can swallow a cancellation.
            async with asyncio.timeout(_BEAT_S):
                await self._news.wait()
        if self._must_join:
            return
        sent_s = clock_s()
        group, member_id, generation = self._standing
        try:
            async with asyncio.timeout(self._session_s / 3):
                await ask(HeartbeatRequest(group, generation, member_id))
        except RebalanceInProgressError:
            # This answer, too, shows that Kafka has heard us.
            self._is_known_alive(sent_s)
            raise
        self._is_known_alive(sent_s)

    async def _join(self, ask: _Ask) -> None:
        """Report the slots that we own, and learn which ones we may have."""
        group, member_id, _ = self._standing
        self._news.clear()
        self._say_given_up()
        claimed = self.owned
        session_ms = round(self._session_s * 1000)
        # A leaving member's released slots go to others at once, even while it drains the rest.
        leaves = {self._slot_count} if self._is_leaving else set()
        protocols = [(_PROTOCOL, _encode(sorted(claimed | leaves)))]
        request = JoinGroupRequest(
            group, session_ms, session_ms, member_id, _DYNAMIC, _PROTOCOL, protocols
        )
        joined = await ask(request)
        if joined.error_code == MemberIdRequired.errno:
            # Kafka first assigns an id to a member, and expects it in the next join.
            self._standing = self._standing._replace(member_id=joined.member_id)
            return
        self._heed_generation(joined.member_id, joined.generation_id)
        self._standing = Standing(group, joined.member_id, joined.generation_id)
        shared_out = []
        if joined.leader_id == joined.member_id:
            owned = {member: _decode(metadata) for member, *_, metadata in joined.members}
            shared_out = [
                (member, _encode(sorted(slots)))
                for member, slots in may_have(owned, self._slot_count).items()
            ]
        sent_s = clock_s()
        synced = await ask(
            SyncGroupRequest(group, joined.generation_id, joined.member_id, _DYNAMIC, shared_out)
        )
        self._is_known_alive(sent_s)
        self._take(_decode(synced.member_assignment), claimed)

    def _heed_generation(self, member_id: str, generation: int) -> None:
        """Accept no slots for a session if Kafka has forgotten the group that we were in.

        Other members do not know that yet, and keep their slots until their next heartbeat.
        """
        before = self._standing
        if (generation, member_id == before.member_id) < (before.generation, True):
            self._waits_until_s = clock_s() + self._session_s
            log.warning("lease.group_forgotten", group=before.group, waits_s=self._session_s)

    def _take(self, mine: frozenset[int], claimed: frozenset[int]) -> None:
        left_s = self._waits_until_s - clock_s()
        if left_s > 0 and mine - self.owned:
            asyncio.get_running_loop().call_later(left_s, self._join_again)
        may_take = not (self._is_leaving or left_s > 0)
        new = mine - self.owned if may_take else frozenset()
        self.owned |= new
        self.is_told = True
        # The group still counts slots as ours if their work ended while we joined.
        self._must_join = bool(claimed - self.owned)
        if new:
            log.info("lease.begun", group=self._standing.group, slots=spelled(new))
            self._work.begin(new)
        self._give_up(self.owned - mine)

    def _join_again(self) -> None:
        self._must_join = True
        self._news.set()

    def _give_up(self, slots: frozenset[int]) -> None:
        new = slots - self._finishing
        self._finishing |= new
        for slot in sorted(new):
            # A slot with hanging work must not delay the others.
            task = asyncio.create_task(self._finish(frozenset({slot})))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish(self, slots: frozenset[int]) -> None:
        try:
            async with asyncio.timeout(self._drain_s):
                await self._work.finish(slots)
            self._given_up |= slots
        except Exception as error:  # noqa: BLE001 - after any error they must not stay with us
            log.warning("lease.cut_off", slots=spelled(slots), error=repr(error))
            self._work.drop(slots)
        self._finishing -= slots
        self.owned -= slots
        self._join_again()

    def _say_given_up(self) -> None:
        if self._given_up:
            log.info("lease.given_up", group=self._standing.group, slots=spelled(self._given_up))
        self._given_up = frozenset()

    def _is_known_alive(self, sent_s: float) -> None:
        """Let the lease last for a session from that time: Kafka heard us then or later."""
        if self._lapses is not None:
            self._lapses.cancel()
        self._lapses_s = sent_s + self._session_s
        self._lapses = asyncio.get_running_loop().call_later(
            self._lapses_s - clock_s(), self._let_go, "Kafka has not answered for a session"
        )

    def _let_go(self, why: str) -> None:
        for task in self._tasks:
            task.cancel()
        self._say_given_up()
        lost, self.owned, self._finishing = self.owned, frozenset(), frozenset()
        self._must_join = True
        if self._lapses is not None:
            self._lapses.cancel()
        if lost:
            self.is_told = False
            log.warning("lease.lost", group=self._standing.group, slots=spelled(lost), why=why)
            self._work.drop(lost)

    async def leave_for(self, former: Standing | None) -> None:
        """Leave the group on behalf of a process that ended without leaving."""
        if former is not None and former.group == self._standing.group:
            await self._leave(former)

    async def _say_goodbye(self) -> None:
        await self._leave(self._standing)

    async def _leave(self, standing: Standing) -> None:
        group, member_id, _ = standing
        if member_id == JoinGroupRequest.UNKNOWN_MEMBER_ID:
            return
        with suppress(KafkaUnavailableError, KafkaError, OSError, TimeoutError):
            async with (
                asyncio.timeout(_GOODBYE_S),
                _coordinator(self._bootstrap_servers, group, session_s=_GOODBYE_S) as ask,
            ):
                await ask(LeaveGroupRequest(group, member_id))


@asynccontextmanager
async def _coordinator(
    bootstrap_servers: str, group: str, *, session_s: float
) -> AsyncIterator[_Ask]:
    """Yield a function that asks a group's coordinator, and raises its error codes."""
    client = new_client(
        bootstrap_servers,
        client_id="hifi-leases",
        request_timeout_ms=round((session_s + _JOIN_GRACE_S) * 1000),
    )

    async def ask(request: Any) -> Any:
        answer = await client.send(node, request)
        if answer.error_code not in (0, MemberIdRequired.errno):
            raise for_code(answer.error_code)
        return answer

    try:
        async with asyncio.timeout(session_s / 3):
            await start_client(client, bootstrap_servers)
            node = client.get_random_node()
            node = (await ask(FindCoordinatorRequest(group, 0))).coordinator_id
        yield ask
    finally:
        await client.stop()


def _decode(slots: bytes) -> frozenset[int]:
    return msgspec.json.decode(slots, type=frozenset[int])
