"""Delivers the due events of one task, by today's destinations and the broker's time.

The lane's query is never started anew for a changed destination: its plan names none, and each task
looks them up when its events are due. A wrong address that was mended rescues what waits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from delivery.deliver import Plan, deliver
from retrier.broker import broker
from retrier.config_follower import configuration_as_of
from shared.runtime.spark.task_tries import is_another_try, micro_batch

# A record has waited at least the shortest tier's delay since some lane knew its destination; a
# configuration that is younger than that knows it too. In real time 30 s would be too lax.
_CONFIG_AGE_S_MAX = 5.0


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
    known = configuration_as_of(bootstrap_servers, age_s_max=age_s_max)
    clock = broker(bootstrap_servers).clock()
    plan = replace(plan, destinations=known.destinations, clock=clock)
    is_again = is_another_try() or (replayed is not None and micro_batch() == replayed)
    yield from deliver(batches, plan, is_again=is_again)
