"""Sends rows as delivery does, with neither lanes nor Kafka: for tests and benchmarks."""

from collections.abc import Iterable, Iterator

from delivery.opening import Rows
from delivery.sending import Plan, Sending, worker_of
from shared.event.record import RecordOut
from shared.retry.routing import in_sheets


def deliver(
    batches: Iterable[Rows], plan: Plan, *, is_again: bool = False
) -> Iterator[list[RecordOut]]:
    """Send every row of a task to its destination; yield the outcomes that `Sending` makes.

    `is_again` means that an earlier try of this task died, so that all of it may be a repeat.
    """
    worker = worker_of(allows_private=plan.allows_private)
    sending = Sending(plan, worker, is_again=is_again)
    try:
        for rows in batches:
            if outcomes := worker.loop.run_until_complete(sending.settle(rows)):
                yield in_sheets(outcomes)
    finally:
        sending.leave()
        worker.loop.run_until_complete(worker.sender.end_task())
