"""Sends numbered batches to Kafka until Kafka has reported on each.

An idempotent producer numbers the events of each Kafka partition, so that a batch that is sent
again is stored only once. A batch without Kafka's acknowledgement may have used its numbers, so its
partition continues at 0 in the next epoch of the producer's id. In that epoch Kafka mistakes no
batch for a repeat of an earlier one, and refuses late batches of the epoch before. Batches for one
broker go together, one request at a time, while the next one gathers.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import msgspec
import structlog
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.transaction import InitProducerIdRequest

from gateway.intake.record_batch import RecordBatch
from gateway.publish.accumulator import NotStoredError, UnknownFateError
from gateway.publish.produce_request import BatchOutcome, Handover, Parcel, SendBatches
from shared.event.record import KafkaPartition
from shared.runtime.kafka.clients import KafkaClient, new_client

log = structlog.get_logger()

# Pause between attempts to reach a Kafka that does not answer.
_CONNECT_PAUSE_S = 0.5
# Pause between attempts to store a batch: a leader is elected within seconds.
_PAUSE_S = 0.1
# Pause between requests for the missing leader of a Kafka partition.
_LEADER_PAUSE_S = 0.2
# Kafka numbers up to 2^31 - 1 and continues at 0.
_NUMBER_MASK = 2**31 - 1
# The last epoch of an id; after it, a Kafka partition needs another id.
_EPOCH_MAX = 2**15 - 1
# Kafka closes a connection that brings more than 100 MB as one request.
_REQUEST_BYTES_MAX = 16 * 1_048_576
# Work given to `meanwhile` waits at most this long.
_MEANWHILE_S = 0.01
# A producer without transactions does not need this timeout, but Kafka demands one.
_TRANSACTION_MS = 60_000
# A broker returns these errors before it appends (see the table in ADR 0075). Any other error, even
# "not leader", may come after the append.
_REFUSED_BEFORE_APPEND = (
    InvalidTopicError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)


class _Numbering(msgspec.Struct, eq=False):
    """The numbering of one Kafka partition."""

    producer_id: int
    epoch: int = 0
    next_number: int = 0


class BatchProducer:
    """One connection to each broker, and a numbering for each Kafka partition."""

    def __init__(self, bootstrap_servers: str, *, timeout_ms: int, give_up_s: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._timeout_ms = timeout_ms
        # Seconds to keep trying to store a batch that is certainly not stored.
        self._give_up_s = give_up_s
        self._client = self._new_client()
        self._producer_id: int | None = None
        self._numberings: dict[KafkaPartition, _Numbering] = {}
        self._renewing: asyncio.Task[None] | None = None
        # Batches that wait for each broker, and the brokers with a request in flight.
        self._waiting: dict[int, list[tuple[Parcel, asyncio.Future[BatchOutcome]]]] = {}
        self._busy: set[int] = set()
        self._meanwhile: list[Callable[[], None]] = []
        self._work_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def cluster(self) -> ClusterMetadata:
        """The known leaders of Kafka partitions."""
        return self._client.cluster

    async def start(self) -> None:
        """Connect, however long that takes; raise KafkaError if waiting would not help."""
        while True:
            try:
                await self._client.start()
                self._producer_id = await self._new_producer_id()
            except (KafkaError, OSError) as error:
                await self._client.stop()
                if isinstance(error, ClusterAuthorizationFailedError):
                    # This answer does not change by itself, so do not wait.
                    raise
                log.warning("kafka.unreachable", error=repr(error))
                await asyncio.sleep(_CONNECT_PAUSE_S)
                self._client = self._new_client()
            except asyncio.CancelledError:
                await self._client.stop()
                raise
            else:
                return

    async def stop(self) -> None:
        """Disconnect from Kafka; all senders already have their reports."""
        if self._renewing is not None:
            self._tasks.add(self._renewing)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.stop()

    async def partitions_of(self, topic: str) -> set[int]:
        partitions: set[int] = await self._client.wait_for_topic(topic)
        return partitions

    async def is_missing(self, topic: str, *, within_s: float) -> bool:
        """Return whether a broker reports in time that there is no such topic."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                has_answered = await self.ask_leaders()
                return has_answered and self.cluster.partitions_for_topic(topic) is None
        return False

    async def ask_leaders(self) -> bool:
        """Fetch the leaders again; return whether a broker has answered."""
        return bool(await self._client.force_metadata_update())

    async def ready(self, place: KafkaPartition) -> None:
        """Wait until a Kafka partition has a leader that answers and can be handed a batch.

        Until then the batch can be withdrawn.
        """
        while not await self._can_reach(place):
            with contextlib.suppress(KafkaError):
                await self._client.wait_for_topic(place.topic)
            if not await self._can_reach(place):
                await asyncio.sleep(_LEADER_PAUSE_S)
                await self._client.force_metadata_update()
        while self._has_no_epoch_left(place):
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew())
            # Other batches may wait for the same renewal.
            await asyncio.shield(self._renewing)

    async def send(self, place: KafkaPartition, batch: RecordBatch, handover: Handover) -> int:
        """Store a batch, and return its offset.

        Raise NotStoredError if it is certainly not in the log and never will be, and
        UnknownFateError for all other failures. Batches of one Kafka partition are sent one after
        the other, each once the partition is `ready`.
        """
        numbering = self._numbering(place)
        pieces = batch.build(numbering.producer_id, numbering.epoch, numbering.next_number)
        parcel, until_s = Parcel(place, pieces, handover), monotonic() + self._give_up_s
        while True:
            may_be_stored = handover.may_be_stored
            try:
                outcome = await self._ask(parcel)
                if not outcome.code:
                    next_number = numbering.next_number + batch.count
                    numbering.next_number = next_number & _NUMBER_MASK
                    return outcome.offset
                error = for_code(outcome.code)()
                if isinstance(error, _REFUSED_BEFORE_APPEND):
                    handover.may_be_stored = may_be_stored
            except KafkaError as failure:
                error = failure
            if handover.is_over or not error.retriable:
                break
            if not handover.may_be_stored and monotonic() >= until_s:
                break
            log.debug("producer.repeats", place=place, error=repr(error))
            if error.invalid_metadata:
                self._client.force_metadata_update()
            await asyncio.sleep(_PAUSE_S)
        numbering.epoch, numbering.next_number = numbering.epoch + 1, 0
        if not handover.may_be_stored:
            raise NotStoredError(f"kafka refuses it: {error!r}") from error
        log.warning("producer.fate_unknown", place=place, error=repr(error))
        raise UnknownFateError(f"kafka did not confirm it: {error!r}") from error

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do some work while a broker handles the next batch, or after a moment without one."""
        if not self._meanwhile:
            loop = asyncio.get_running_loop()
            self._work_timer = loop.call_later(_MEANWHILE_S, self._work)
        self._meanwhile.append(work)

    def _new_client(self) -> KafkaClient:
        return new_client(
            self._bootstrap_servers, client_id="hifi-gateway", request_timeout_ms=self._timeout_ms
        )

    def _work(self) -> None:
        all_work, self._meanwhile = self._meanwhile, []
        if self._work_timer is not None:
            self._work_timer.cancel()
        for work in all_work:
            try:
                work()
            except Exception:
                # A bug in one work item: the others must be done.
                log.exception("producer.work_failed")

    def _leader(self, place: KafkaPartition) -> int | None:
        node = self.cluster.leader_for_partition(place)
        return None if node is None or node < 0 else node

    async def _can_reach(self, place: KafkaPartition) -> bool:
        node = self._leader(place)
        return node is not None and bool(await self._client.ready(node))

    def _has_no_epoch_left(self, place: KafkaPartition) -> bool:
        numbering = self._numberings.get(place)
        if numbering is None or numbering.epoch <= _EPOCH_MAX:
            return False
        return numbering.producer_id == self._producer_id

    def _numbering(self, place: KafkaPartition) -> _Numbering:
        numbering = self._numberings.get(place)
        if numbering is None or numbering.epoch > _EPOCH_MAX:
            assert self._producer_id is not None, "the producer is started, and the place ready"
            numbering = self._numberings[place] = _Numbering(self._producer_id)
        return numbering

    async def _renew(self) -> None:
        try:
            self._producer_id = await self._new_producer_id()
        except KafkaError as error:
            # The sender asks again; until then its events can be withdrawn.
            log.warning("producer.not_renewed", error=repr(error))
            await asyncio.sleep(_CONNECT_PAUSE_S)
        finally:
            self._renewing = None

    async def _new_producer_id(self) -> int:
        request = InitProducerIdRequest(None, _TRANSACTION_MS)
        while True:
            try:
                answer = await self._client.send(self._client.get_random_node(), request)
                if not answer.error_code:
                    return int(answer.producer_id)
                error = for_code(answer.error_code)()
            except KafkaError as failure:
                error = failure
            if not error.retriable:
                raise error
            log.warning("kafka.unreachable", error=repr(error))
            await asyncio.sleep(_PAUSE_S)
            await self._client.force_metadata_update()

    async def _ask(self, parcel: Parcel) -> BatchOutcome:
        """Send a batch to the leader of its Kafka partition once; return the outcome."""
        if (node := self._leader(parcel.place)) is None:
            raise LeaderNotAvailableError(f"no leader for {parcel.place}")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[BatchOutcome] = loop.create_future()
        waiting = self._waiting.setdefault(node, [])
        if not waiting and node not in self._busy:
            # Other batches of this turn of the loop go into the same request.
            loop.call_soon(self._send_waiting, node)
        waiting.append((parcel, answered))
        return await answered

    def _send_waiting(self, node: int) -> None:
        waiting = self._waiting.get(node)
        if not waiting:
            return
        room = _REQUEST_BYTES_MAX
        for count, (parcel, _) in enumerate(waiting):
            room -= parcel.byte_count
            if room < 0 and count:
                break
        else:
            count = len(waiting)
        self._waiting[node] = waiting[count:]
        self._busy.add(node)
        self._spawn(self._exchange(node, waiting[:count]))

    async def _exchange(
        self, node: int, waiting: list[tuple[Parcel, asyncio.Future[BatchOutcome]]]
    ) -> None:
        """Send batches to a broker, and pass on its answers."""
        if self._meanwhile:
            # The work runs after the write below.
            asyncio.get_running_loop().call_soon(self._work)
        request = SendBatches([parcel for parcel, _ in waiting], timeout_ms=self._timeout_ms)
        try:
            answer = await self._client.send(node, request)
        except Exception as error:  # noqa: BLE001 - waiting senders must get any error
            failure = error if isinstance(error, KafkaError) else KafkaError(repr(error))
            for _, answered in waiting:
                if not answered.done():
                    answered.set_exception(failure)
        else:
            for parcel, answered in waiting:
                if answered.done():
                    continue
                if (outcome := answer.get(parcel.place)) is None:
                    # The batch was given up before it was written, or the answer lacks it.
                    answered.set_exception(KafkaError(f"no answer for {parcel.place}"))
                else:
                    answered.set_result(outcome)
        finally:
            self._busy.discard(node)
            self._send_waiting(node)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
