"""Limits how long Spark works for a thread."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from pyspark import SparkContext

# How soon jobs that begin after the cancellation are cancelled as well.
_AGAIN_S = 1.0


class TookTooLongError(Exception):
    """Spark work was cancelled at its time limit; it might never have ended."""


@contextmanager
def bounded(context: SparkContext, pool: str, seconds_max: float) -> Iterator[None]:
    """Run this thread's Spark jobs in a pool, and cancel them after `seconds_max`."""
    context.setLocalProperty("spark.scheduler.pool", pool)
    tag, is_over, is_late = f"hifi-{uuid.uuid4()}", Event(), Event()

    def cut_off() -> None:
        wait_s = seconds_max
        while not is_over.wait(wait_s):
            is_late.set()
            context.cancelJobsWithTag(tag)
            wait_s = _AGAIN_S

    context.addJobTag(tag)
    Thread(target=cut_off, name="cut-off", daemon=True).start()
    try:
        yield
    except Exception as error:
        if is_late.is_set():
            raise TookTooLongError(f"it took longer than {seconds_max:g} s") from error
        raise
    finally:
        is_over.set()
        context.removeJobTag(tag)
