"""Starts Spark when the first pipeline asks for it: until then the process has no JVM."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from pyspark.sql import SparkSession

from pipelines.judging.sandbox import lock
from shared.runtime.spark.own_executor import executors_of
from shared.runtime.spark.session import SparkSettings, running_spark

# A cluster may have no free executor.
_EXECUTOR_S_MAX, _LOOK_S = 30.0, 0.2


class SparkOnDemand:
    """The one session of this process. Once started, it stays."""

    def __init__(self, settings: SparkSettings, on_up: Callable[[], None]) -> None:
        self.session: SparkSession | None = None
        # Set once there is a session.
        self.is_up = asyncio.Event()
        self.watch = settings.watch
        self._settings = settings
        self._on_up = on_up
        self._held = ExitStack()
        self._starting = asyncio.Lock()
        # A JVM takes seconds to start and to end.
        self._thread = ThreadPoolExecutor(1, "session")

    async def get(self) -> SparkSession:
        async with self._starting:
            if self.session is None:
                loop = asyncio.get_running_loop()
                self.session = await loop.run_in_executor(self._thread, self._start)
                self._on_up()
                self.is_up.set()
            return self.session

    async def wait_for_executor(self) -> None:
        """Wait until there is an executor: the next one is up a few seconds after one has ended."""
        context = (await self.get()).sparkContext
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXECUTOR_S_MAX):
                # Spark has no event to wait for.
                while not await asyncio.to_thread(executors_of, context):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)

    def _start(self) -> SparkSession:
        session = self._held.enter_context(running_spark(self._settings))
        lock(session)
        return session

    async def close(self) -> None:
        """End the session, if it was started."""
        async with self._starting:
            self.session = None
            await asyncio.get_running_loop().run_in_executor(self._thread, self._held.close)
            self._thread.shutdown(wait=False)
