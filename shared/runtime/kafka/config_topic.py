"""Follows the config topic: config push without a database."""

from shared.config.configuration import Configuration
from shared.event.topics import CONFIG
from shared.runtime.kafka.topic_feed import TopicFeed


class ConfigFeed(TopicFeed[Configuration]):
    """The newest configuration, kept up to date in the background, whatever Kafka does."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers, CONFIG, empty=Configuration(), fold=Configuration.apply)

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
