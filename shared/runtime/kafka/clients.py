"""Makes every Kafka client, and turns its errors into one sentence for the operator."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol, TypeAlias, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    IllegalOperation,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
)

import shared.runtime.kafka.logins.broker_connection  # noqa: F401 - it replaces a class of aiokafka
from shared.runtime.kafka.connection import client_connection
from shared.runtime.kafka.refusals import missing_right, refusal
from shared.runtime.setup_error import KafkaRefusedError, KafkaUnavailableError

log = structlog.get_logger()

KafkaProducer: TypeAlias = AIOKafkaProducer
# Another producer with the same transactional id has begun. The client raises the second error if
# it has seen the first one in the background.
FENCED = (ProducerFenced, IllegalOperation)
# Errors after which only another try can help.
AWAY = (KafkaError, OSError, KafkaUnavailableError)
# The election of a leader takes seconds.
_ASK_AGAIN_S = 0.1
# Errors about a single record, not about the producer.
RECORD_REFUSED = (MessageSizeTooLargeError,)


# aiokafka has no annotations.
class KafkaClient(AIOKafkaClient):  # type: ignore[misc]
    """Sends single requests of Kafka's protocol to single brokers."""

    start, stop = AIOKafkaClient.bootstrap, AIOKafkaClient.close
    # It waits until the leaders of a topic are known.
    wait_for_topic = AIOKafkaClient._wait_on_metadata  # noqa: SLF001 - others have no way to


class KafkaConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """Reads a log."""

    async def stop(self) -> None:
        """Stop like aiokafka, but do not mistake the end of a fetch for our own cancellation.

        aiokafka cancels each fetch and waits for it. A fetch that pauses after an error, such as
        while Kafka is down, ends with CancelledError. That error used to leave `stop` as if we had
        been cancelled: it ended a process, and the parts after the fetches were never stopped.
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
    """Return a consumer without a group: its reader keeps the position."""
    defaults = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        # Redrives write in transactions: an aborted one has written nothing.
        "isolation_level": "read_committed",
    }
    consumer = KafkaConsumer(**client_connection(bootstrap_servers), **(defaults | options))
    return _with_pauses(consumer, consumer._client)  # noqa: SLF001 - nobody else has it


def new_producer(bootstrap_servers: str, **options: Any) -> AIOKafkaProducer:
    """Return a producer whose reports mean that every replica in sync has the record."""
    producer = AIOKafkaProducer(
        **client_connection(bootstrap_servers), **({"acks": "all"} | options)
    )
    return _with_pauses(producer, producer.client)


def new_admin(bootstrap_servers: str, **options: Any) -> KafkaAdmin:
    """Return a client for topics and their settings."""
    return KafkaAdmin(**client_connection(bootstrap_servers), **options)


def new_client(bootstrap_servers: str, **options: Any) -> KafkaClient:
    """Return a client for requests that the others do not offer."""
    client = KafkaClient(**client_connection(bootstrap_servers), **options)
    return _with_pauses(client, client)


def _with_pauses(owner: C, client: AIOKafkaClient) -> C:
    """Make a client pause before it asks again for the leaders of the same topics.

    aiokafka does not pause. While a Kafka partition for one of its records has no leader, it asks
    hundreds of times a second, which takes most of a core here and a fifth of one at each broker.
    """
    ask = client._metadata_update  # noqa: SLF001 - it has no hook for this
    asked_s, known = -math.inf, frozenset[str]()

    async def ask_later(cluster: Any, topics: Collection[str] | None) -> bool:
        nonlocal asked_s, known
        # A caller that waits for its own answer is not delayed.
        if cluster is client.cluster:
            if known == frozenset(topics or ()):
                await asyncio.sleep(asked_s + _ASK_AGAIN_S - time.monotonic())
            asked_s, known = time.monotonic(), frozenset(topics or ())
        try:
            is_told: bool = await ask(cluster, topics)
        except Exception:
            # Otherwise the client's task would end, and callers would wait forever.
            log.exception("kafka.not_asked")
            return False
        return is_told

    client._metadata_update = ask_later  # noqa: SLF001 - as above
    return owner


async def start_client(client: C, bootstrap_servers: str) -> C:
    """Start a client; close its connections if the start fails."""
    try:
        with kafka_errors(bootstrap_servers):
            await client.start()
        # A client stopped before its own tasks have begun would raise CancelledError.
        await asyncio.sleep(0)
    except BaseException as error:
        await client.stop()
        if isinstance(error, KafkaUnavailableError):
            await check_access(bootstrap_servers)
        raise
    return client


async def check_access(bootstrap_servers: str) -> None:
    """Raise KafkaRefusedError if Kafka refuses our login; an unreachable Kafka does not count."""
    if says := await refusal(bootstrap_servers):
        raise KafkaRefusedError(says)


@asynccontextmanager
async def running(client: C, bootstrap_servers: str) -> AsyncIterator[C]:
    """Run a client during the block; convert its errors to KafkaUnavailableError."""
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
    """Convert errors of Kafka and its client to errors of one sentence."""
    try:
        yield
    except KafkaConnectionError as error:
        raise KafkaUnavailableError(
            f"No Kafka broker answers at {bootstrap_servers} ({error}):"
            " start one with `hifi up`, or use another address."
        ) from error
    except (KafkaError, TimeoutError) as error:
        if says := missing_right(bootstrap_servers, error):
            raise KafkaRefusedError(says) from error
        raise KafkaUnavailableError(
            f"Kafka at {bootstrap_servers} fails a request ({error!r}):"
            " try again when it is healthy."
        ) from error
