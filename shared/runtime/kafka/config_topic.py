"""Writes and follows the config topic: config push without a database."""

from collections.abc import Callable, Iterable

from shared.config.access import ApiKey, Tenant
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.topics import CONFIG
from shared.runtime.kafka.clients import new_producer, running
from shared.runtime.kafka.topic_feed import TopicFeed

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
    async with running(new_producer(bootstrap_servers), bootstrap_servers) as producer:
        for key, value in records:
            await producer.send_and_wait(CONFIG, key=key, value=value)
