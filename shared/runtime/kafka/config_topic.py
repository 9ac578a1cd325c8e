"""Follows the config topic, so that services learn of changes without a database."""

from shared.config.configuration import Configuration
from shared.event.topics import CONFIG
from shared.runtime.kafka.topic_feed import TopicFeed

# The transactional id of all who write to the topic, so that they write one at a time.
CONFIG_WRITER = "hifi-config"


class ConfigFeed(TopicFeed[Configuration]):
    """The newest configuration, kept up to date in the background, even after Kafka's errors."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers, CONFIG, empty=Configuration(), fold=Configuration.apply)

    @property
    def configuration(self) -> Configuration:
        return self.value


async def read_config(bootstrap_servers: str) -> Configuration:
    """Return the current configuration."""
    feed = ConfigFeed(bootstrap_servers)
    try:
        await feed.start()
    finally:
        await feed.stop()
    return feed.configuration
