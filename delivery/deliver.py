"""Delivers the rows of a Spark task whose outcomes Spark stores: a replay's.

`deliver` is a plain generator with no Spark in it. It yields what `Sending` makes of the rows:
receipts, retries, dead letters, and now and then what is known of a destination. It raises only for
our own mistakes, so that the task fails and Spark reads the same rows again.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from delivery.opening import Rows
from delivery.sending import Plan, Sending, worker_of
from shared.retry.routing import in_sheets
from shared.runtime.spark.arrow_rows import batch_of


def deliver(
    batches: Iterable[Rows], plan: Plan, *, is_again: bool = False
) -> Iterator[pa.RecordBatch]:
    """Send every row of a task to its destination; yield one row per outcome.

    `is_again` says that another try of this very task died, so that all of it may be a repeat.
    """
    worker = worker_of(allows_private=plan.allows_private)
    sending = Sending(plan, worker, is_again=is_again)
    try:
        for rows in batches:
            if outcomes := worker.loop.run_until_complete(sending.settle(rows)):
                yield batch_of(in_sheets(outcomes))
    finally:
        sending.leave()
        worker.loop.run_until_complete(worker.sender.end_task())
