"""Starts Spark when the first pipeline asks for it: until then this is a process without a JVM."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from pyspark.sql import SparkSession

from pipelines.judging.sandbox import lock
from shared.runtime.spark.own_executor import executors_of
from shared.runtime.spark.session import SparkSettings, running_spark

# An executor is up within a few seconds after the one before it; a cluster may have none to give.
_EXECUTOR_S_MAX, _LOOK_S = 30.0, 0.2


class SparkOnDemand:
    """The one session of this process. It stays once it is there."""

    def __init__(self, settings: SparkSettings, on_up: Callable[[], None]) -> None:
        self.session: SparkSession | None = None
        # What is to be done once there is one.
        self.is_up = asyncio.Event()
        self.watch = settings.watch
        # When each executor was first seen.
        self._seen_s: dict[str, float] = {}
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

    async def executor_age_s(self) -> float:
        """For how long an executor has been seen; waits for the next one if there is none."""
        spark, until_s = await self.get(), time.monotonic() + _EXECUTOR_S_MAX
        while True:
            there = await asyncio.to_thread(executors_of, spark.sparkContext)
            now_s = time.monotonic()
            self._seen_s = {it: self._seen_s.get(it, now_s) for it in there}
            if there or now_s > until_s:
                return now_s - min(self._seen_s.values(), default=now_s)
            await asyncio.sleep(_LOOK_S)

    def _start(self) -> SparkSession:
        session = self._held.enter_context(running_spark(self._settings))
        lock(session)
        return session

    async def close(self) -> None:
        """End it, if it was started."""
        async with self._starting:
            self.session = None
            await asyncio.get_running_loop().run_in_executor(self._thread, self._held.close)
            self._thread.shutdown(wait=False)
