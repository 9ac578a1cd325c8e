"""Decides how the config topic is written and followed: config push without a database."""

from collections.abc import Callable, Iterable

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from shared.config.access import ApiKey, Tenant
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.topics import CONFIG
from shared.runtime.kafka.client_start import started
from shared.runtime.kafka.topic_feed import TopicFeed
from shared.runtime.setup_error import SetupError

ConfigObject = Stream | Destination | ApiKey | Tenant


class ConfigFeed(TopicFeed[Configuration]):
    """The newest configuration, kept up to date in the background, whatever happens to Kafka."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        on_change: Callable[[Configuration], None] | None = None,
    ) -> None:
        super().__init__(
            bootstrap_servers,
            CONFIG,
            empty=Configuration(),
            fold=Configuration.apply,
            on_change=on_change,
        )

    @property
    def configuration(self) -> Configuration:
        return self.value


async def read_config(bootstrap_servers: str) -> Configuration:
    """The configuration as of now."""
    feed = ConfigFeed(bootstrap_servers)
    try:
        await feed.start()
    finally:
        await feed.stop()
    return feed.configuration


async def write_config(bootstrap_servers: str, objects: Iterable[ConfigObject]) -> None:
    """Store config objects; returns after Kafka has reported each."""
    await write_records(bootstrap_servers, [(item.config_key, item.to_json()) for item in objects])


async def write_records(
    bootstrap_servers: str, records: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Store config records as they are; None as a value removes the object."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    try:
        async with started(producer):
            for key, value in records:
                await producer.send_and_wait(CONFIG, key=key, value=value)
    except KafkaError as error:
        raise SetupError(
            f"Kafka at {bootstrap_servers} did not take the configuration ({error!r}):"
            " write it again when Kafka is well."
        ) from error
