"""Has Spark work for so long and no longer."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from pyspark import SparkContext

# What begins after all that was running has been cut off is cut off as well.
_AGAIN_S = 1.0


class TookTooLongError(Exception):
    """Something of it may never have ended."""


@contextmanager
def bounded(context: SparkContext, pool: str, seconds_max: float) -> Iterator[None]:
    """What this thread has Spark do meanwhile, in a pool of its own, ends by then."""
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
