"""Tells whether any destination asks for real time, and so for a Spark driver of its own."""

import asyncio
from threading import Event, Thread

import structlog

from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.setup_error import OperatorError

log = structlog.get_logger()

_LOOK_S = 0.25
# Kafka has just started when this does; an election of a leader is over by then.
_AGAIN_S = 2.0


class RealtimeWatcher:
    """Follows the config topic in a thread, as the stack itself has no loop."""

    def __init__(self) -> None:
        self._is_there, self._stop = Event(), Event()
        self._thread: Thread | None = None

    @property
    def is_there(self) -> bool:
        """Once there has been one, it stays: its driver is not worth stopping again."""
        return self._is_there.is_set()

    def start(self, bootstrap_servers: str) -> None:
        self._thread = Thread(
            target=self._watch, args=(bootstrap_servers,), name="realtime-watcher", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, bootstrap_servers: str) -> None:
        while not self._stop.is_set() and not self.is_there:
            try:
                asyncio.run(self._follow(bootstrap_servers))
            except asyncio.CancelledError:
                # So the client ends what waits for a Kafka that is killed in that moment.
                continue
            except OperatorError as error:
                log.warning("realtime.config_unread", error=str(error))
                self._stop.wait(_AGAIN_S)

    async def _follow(self, bootstrap_servers: str) -> None:
        feed = ConfigFeed(bootstrap_servers)
        try:
            await feed.start()
            while not self._stop.is_set() and not self.is_there:
                destinations = feed.configuration.destinations.values()
                if any(destination.latency == "realtime" for destination in destinations):
                    self._is_there.set()
                await asyncio.sleep(_LOOK_S)
        finally:
            await feed.stop()
