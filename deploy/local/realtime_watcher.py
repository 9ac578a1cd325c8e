"""Tells whether any destination asks for real time, and so for a Spark driver of its own."""

import asyncio
from threading import Event, Thread

import structlog

from shared.config.configuration import Configuration
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.setup_error import OperatorError

log = structlog.get_logger()

# Kafka has just started when this does; an election of a leader is over by then.
_AGAIN_S = 2.0


class RealtimeWatcher:
    """Follows the config topic in a thread, as the stack itself has no loop."""

    def __init__(self) -> None:
        self._is_there = Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    @property
    def is_there(self) -> bool:
        """Once there has been one, it stays: its driver is not worth stopping again."""
        return self._is_there.is_set()

    def start(self, bootstrap_servers: str) -> None:
        began = Event()
        self._thread = Thread(
            target=lambda: asyncio.run(self._follow(bootstrap_servers, began)),
            name="realtime-wish",
            daemon=True,
        )
        self._thread.start()
        began.wait()

    def stop(self) -> None:
        if self._thread is not None and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._thread = None

    async def _follow(self, bootstrap_servers: str, began: Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        began.set()
        while not self._stop.is_set():
            feed = ConfigFeed(bootstrap_servers, on_change=self._look)
            try:
                await feed.start()
                self._look(feed.configuration)
                await self._stop.wait()
            except OperatorError as error:
                log.warning("realtime.wish_unread", error=str(error))
                await self._pause()
            finally:
                await feed.stop()

    async def _pause(self) -> None:
        assert self._stop is not None, "a follower has its stop"
        try:
            async with asyncio.timeout(_AGAIN_S):
                await self._stop.wait()
        except TimeoutError:
            return

    def _look(self, configuration: Configuration) -> None:
        if any(to.latency == "realtime" for to in configuration.destinations.values()):
            self._is_there.set()
