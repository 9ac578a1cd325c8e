"""Delivers the due events of one task, by today's destinations and the broker's time.

The lane's query is never started anew for a changed destination: its plan names none, and each task
looks them up when its events are due. A wrong address that was mended rescues what waits.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

import pyarrow as pa

from delivery.deliver import deliver
from delivery.sending import Plan
from retrier.broker import broker
from shared.config.configuration import Configuration
from shared.runtime.kafka.config_topic import ConfigFeed, read_config
from shared.runtime.spark.arrow_rows import records_of
from shared.runtime.spark.task_tries import is_another_try, micro_batch

# A record has waited at least the shortest tier's delay since some lane knew its destination; a
# configuration that is younger than that knows it too. In real time 30 s would be too lax.
_CONFIG_AGE_S_MAX = 5.0
# Kafka answers a first reading in a tenth of a second; a worker that waits longer fails its task.
_START_TIMEOUT_S = 30.0


def deliver_due(
    batches: Iterable[pa.RecordBatch],
    *,
    plan: Plan,
    bootstrap_servers: str,
    replayed: int | None,
) -> Iterator[pa.RecordBatch]:
    """`deliver`, with what only the moment of the task can tell.

    `replayed` is the micro-batch that another life of this process had begun: whatever is sent in
    it may have been sent before.
    """
    age_s_max = min(plan.schedule.tiers[0].delay_s, _CONFIG_AGE_S_MAX)
    known = _config_follower(bootstrap_servers).as_of(age_s_max=age_s_max)
    clock = broker(bootstrap_servers).clock()
    removed = known.removed_destinations.keys()
    plan = replace(plan, destinations=known.destinations, removed=removed, clock=clock)
    is_again = is_another_try() or (replayed is not None and micro_batch() == replayed)
    rows = (list(records_of(batch)) for batch in batches)
    yield from deliver(rows, plan, is_again=is_again)


class ConfigFollower:
    """Follows the config topic for a worker, which has no loop of its own and lives for many tasks.

    A feed in a thread; it ends with the process.
    """

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


# The follower of the process, made at its first question.
_config_follower = cache(ConfigFollower)
