"""Makes every Kafka client, and turns its errors into one sentence for the operator."""

import asyncio
import math
import socket
import struct
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol, TypeAlias, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, conn
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    IllegalOperation,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
)

from shared.runtime.kafka.connection import client_connection
from shared.runtime.kafka.refusals import missing_right, refusal
from shared.runtime.setup_error import KafkaRefusedError, KafkaUnavailableError

log = structlog.get_logger()

KafkaProducer: TypeAlias = AIOKafkaProducer
# Another producer of the same transactional id has begun. The client raises the second error when
# it has seen the first in the background.
FENCED = (ProducerFenced, IllegalOperation)
# Only trying again may help against these.
AWAY = (KafkaError, OSError, KafkaUnavailableError)
# A leader is elected within seconds.
_ASK_AGAIN_S = 0.1
# Linger: on, for 0 s.
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
# Errors about a single record, not about the producer.
RECORD_REFUSED = (MessageSizeTooLargeError,)


# aiokafka has no annotations.
class _KafkaConnection(conn.AIOKafkaConnection):  # type: ignore[misc]
    """A connection of any client, whose ends leave nothing undone."""

    def send(self, request: Any, expect_response: bool = True) -> Any:  # noqa: FBT001, FBT002 - as given
        """Send as aiokafka does, but raise an error of uvloop as one of Kafka's.

        uvloop raises RuntimeError for a socket that was reset a moment ago, before the reader of
        the connection has heard of it. aiokafka expects no such error: its task that
        learns the leaders ended, and then its client waited without end.
        """
        try:
            return super().send(request, expect_response)
        except RuntimeError as error:
            self.close(reason=conn.CloseReason.CONNECTION_BROKEN, exc=error)
            raise KafkaConnectionError(f"{self!r} is broken: {error}") from error

    def close(self, reason: Any = None, exc: Exception | None = None) -> Any:
        """As aiokafka does, but a request that times out leaves nothing behind to be written.

        Otherwise the kernel would still send those bytes when the broker wakes, long after the
        request was reported as failed.
        """
        if reason is conn.CloseReason.CONNECTION_TIMEOUT and (writer := self._writer) is not None:
            raw = writer.get_extra_info("socket")
            if raw.fileno() >= 0:
                # Reset: the kernel's buffer is dropped as well.
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
                writer.transport.abort()
        return super().close(reason, exc)


# Clients make their connections themselves, and take the class from here.
conn.AIOKafkaConnection = _KafkaConnection


class KafkaClient(AIOKafkaClient):  # type: ignore[misc]
    """Sends single requests of Kafka's protocol to single brokers."""

    start, stop = AIOKafkaClient.bootstrap, AIOKafkaClient.close
    # Waits until the leaders of a topic are known.
    wait_for_topic = AIOKafkaClient._wait_on_metadata  # noqa: SLF001 - others have no way to


class KafkaConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """Reads a log."""

    async def stop(self) -> None:
        """As aiokafka does, but the end of a fetch is not mistaken for our own.

        It cancels each fetch and waits for it. One that pauses after an error, as while Kafka is
        away, ends in that cancellation, which then left `stop` and looked as if we were cancelled:
        a process ended of it, and never stopped the parts that come after the fetches.
        """
        if (fetcher := self._fetcher) is not None:
            fetches = [fetcher._fetch_task, *fetcher._pending_tasks]  # noqa: SLF001 - see above
            for fetch in fetches:
                fetch.cancel()
            await asyncio.gather(*fetches, return_exceptions=True)
            fetcher._pending_tasks.clear()  # noqa: SLF001 - see above
        await super().stop()


class KafkaAdmin(AIOKafkaAdminClient):  # type: ignore[misc]
    """Lists and changes topics."""

    stop = AIOKafkaAdminClient.close


class _Client(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


C = TypeVar("C", bound=_Client)


def new_consumer(bootstrap_servers: str, **options: Any) -> KafkaConsumer:
    """A consumer that belongs to no group: its reader keeps the position."""
    defaults = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        # A re-drive writes in transactions: an aborted one has written nothing.
        "isolation_level": "read_committed",
    }
    consumer = KafkaConsumer(**client_connection(bootstrap_servers), **(defaults | options))
    return _with_pauses(consumer, consumer._client)  # noqa: SLF001 - nobody else has it


def new_producer(bootstrap_servers: str, **options: Any) -> AIOKafkaProducer:
    """A producer whose reports mean that every replica in sync has the record."""
    producer = AIOKafkaProducer(
        **client_connection(bootstrap_servers), **({"acks": "all"} | options)
    )
    return _with_pauses(producer, producer.client)


def new_admin(bootstrap_servers: str, **options: Any) -> KafkaAdmin:
    """A client for topics and their settings."""
    return KafkaAdmin(**client_connection(bootstrap_servers), **options)


def new_client(bootstrap_servers: str, **options: Any) -> KafkaClient:
    """A client for requests that the others do not offer."""
    client = KafkaClient(**client_connection(bootstrap_servers), **options)
    return _with_pauses(client, client)


def _with_pauses(owner: C, client: AIOKafkaClient) -> C:
    """Have a client pause before it asks again for the leaders of the same topics.

    aiokafka does not: while nobody leads one Kafka partition that it has a record for, it asks
    hundreds of times a second, for most of a core of ours and a fifth of one of each broker's.
    """
    ask = client._metadata_update  # noqa: SLF001 - it has no hook for this
    asked_s, known = -math.inf, frozenset[str]()

    async def ask_later(cluster: Any, topics: Collection[str] | None) -> bool:
        nonlocal asked_s, known
        # A caller that waits for its own answer gets it at once.
        if cluster is client.cluster:
            if known == frozenset(topics or ()):
                await asyncio.sleep(asked_s + _ASK_AGAIN_S - time.monotonic())
            asked_s, known = time.monotonic(), frozenset(topics or ())
        try:
            is_told: bool = await ask(cluster, topics)
        except Exception:
            # Otherwise the asking task would end, and its waiters would hang.
            log.exception("kafka.not_asked")
            return False
        return is_told

    client._metadata_update = ask_later  # noqa: SLF001 - as above
    return owner


async def start_client(client: C, bootstrap_servers: str) -> C:
    """Start a client; one whose start fails has connections to close, too."""
    try:
        with kafka_errors(bootstrap_servers):
            await client.start()
        # A client that is stopped before its own tasks have begun ends in a cancellation.
        await asyncio.sleep(0)
    except BaseException as error:
        await client.stop()
        if isinstance(error, KafkaUnavailableError):
            await check_access(bootstrap_servers)
        raise
    return client


async def check_access(bootstrap_servers: str) -> None:
    """Raise KafkaRefusedError if Kafka does not let us in; one that is away has not refused."""
    if says := await refusal(bootstrap_servers):
        raise KafkaRefusedError(says)


@asynccontextmanager
async def running(client: C, bootstrap_servers: str) -> AsyncIterator[C]:
    """Run a client for as long as the block lasts; its errors leave as KafkaUnavailableError."""
    await start_client(client, bootstrap_servers)
    try:
        with kafka_errors(bootstrap_servers):
            yield client
    finally:
        # Reported records are stored, however the connections end.
        with suppress(KafkaError):
            await client.stop()


@contextmanager
def kafka_errors(bootstrap_servers: str) -> Iterator[None]:
    """Turn errors of Kafka or its client into one sentence."""
    try:
        yield
    except KafkaConnectionError as error:
        raise KafkaUnavailableError(
            f"No Kafka broker answers at {bootstrap_servers} ({error}):"
            " start one with `hifi up`, or name another Kafka."
        ) from error
    except (KafkaError, TimeoutError) as error:
        if says := missing_right(bootstrap_servers, error):
            raise KafkaRefusedError(says) from error
        raise KafkaUnavailableError(
            f"Kafka at {bootstrap_servers} does not do what it is asked ({error!r}):"
            " try again when it is well."
        ) from error
