"""Decides what a task of delivery knows of its moment: a try before it, the tasks beside it."""

import random
from collections.abc import Iterable, Iterator

import pyarrow as pa

from delivery.deliver import Plan, deliver
from delivery.rows import Rows
from shared.runtime.task_tries import is_another_try, is_first_task

# A micro-batch whose destination may not be sent to lasts so long at least. It would otherwise be
# over at once, and planning one after the other takes half a core from the lanes that can send
# (ADR 0030). What it waits for is the retrier's delay of 30 s, or a person.
_REFUSED_S = (2.0, 2.5)
# Lanes that began together wait for the same timeouts and end together, for ever; what all of their
# tasks park then holds up the lanes that can send (ADR 0035). So each one takes its turn by chance.
_SPREAD_S = 2.0
# Not a generator with a state, which the workers, copies of one process, would all have the same.
_DICE = random.SystemRandom()


def deliver_stream(batches: Iterable[Rows], *, plan: Plan) -> Iterator[pa.RecordBatch]:
    """`deliver`, with what only the moment of the task can tell."""
    # One task of the micro-batch is enough to make it last, and leaves the others' slots free.
    yield from deliver(
        batches,
        plan,
        is_again=is_another_try(),
        lasts_s_when_refused=_DICE.uniform(*_REFUSED_S) if is_first_task() else 0.0,
        waits_s_when_held_up=0.0 if plan.is_realtime else _DICE.uniform(0.0, _SPREAD_S),
    )
