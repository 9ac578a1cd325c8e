"""Gives the newest configuration to a worker process that has no loop of its own.

Spark calls our functions from ordinary code, and keeps a worker for many tasks: a feed follows the
config topic in a thread for as long as the process lives.
"""

import asyncio
import threading

from shared.config.configuration import Configuration
from shared.runtime.kafka.config_topic import ConfigFeed, read_config

# Kafka answers a first reading in a tenth of a second; a worker that waits longer fails its task.
_START_TIMEOUT_S = 30.0


class ConfigFollower:
    """A feed in a thread; it ends with the process."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._feed = ConfigFeed(bootstrap_servers)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="config", daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._feed.start(), self._loop).result(_START_TIMEOUT_S)

    def as_of(self, *, age_s_max: float) -> Configuration:
        """A configuration that was the newest at most so long ago; read anew if need be."""
        if self._feed.age_s <= age_s_max:
            return self._feed.configuration
        reading = asyncio.run_coroutine_threadsafe(read_config(self._bootstrap_servers), self._loop)
        return reading.result(_START_TIMEOUT_S)

    def close(self) -> None:
        """Let go of Kafka; a worker process just ends."""
        asyncio.run_coroutine_threadsafe(self._feed.stop(), self._loop).result(_START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)


_followers: dict[str, ConfigFollower] = {}


def configuration_as_of(bootstrap_servers: str, *, age_s_max: float) -> Configuration:
    """The configuration, as the process follows it from its first question on."""
    if bootstrap_servers not in _followers:
        _followers[bootstrap_servers] = ConfigFollower(bootstrap_servers)
    return _followers[bootstrap_servers].as_of(age_s_max=age_s_max)
