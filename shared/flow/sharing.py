"""Divides a destination's concurrent requests among the tasks that send to it."""

from collections.abc import Mapping
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

# A task that waits for longer than the first time gets the next free request, so that every task
# gets some during its micro-batch. A task that still waits after the second time has died.
WAIT_MS_MAX, GONE_MS = 1_000, 10_000
# A waiting task is not notified when another task's request has ended, so it checks again.
LOOK_AGAIN_MS = 25


class SendingTask(Struct, frozen=True):
    """A task that sends at present."""

    # It may have died if it has not reported by then.
    until_ms: int
    running_count: int = 0
    # Since when it has waited for permission for a request; 0 if it does not wait.
    waits_since_ms: int = 0


Tasks = Mapping[str, SendingTask]


def joined(tasks: Tasks, task: str, *, lease_ms: int, now_ms: int) -> Tasks:
    """The tasks with this one, and without those that have not reported in time."""
    sending = tasks.get(task)
    # Renew the lease at half of its time, so that not every request must write something.
    if sending is not None and now_ms + lease_ms // 2 <= sending.until_ms <= now_ms + lease_ms:
        return tasks
    alive = {name: each for name, each in tasks.items() if now_ms < each.until_ms}
    until_ms = now_ms + lease_ms
    sending = SendingTask(until_ms) if sending is None else replace(sending, until_ms=until_ms)
    return {**alive, task: sending}


def left(tasks: Tasks, task: str) -> Tasks:
    return {name: sending for name, sending in tasks.items() if name != task}


def runs(tasks: Tasks, task: str, running_count: int) -> Tasks:
    """The tasks, with this many requests of this one under way."""
    sending = tasks.get(task)
    if sending is None or sending.running_count == running_count:
        return tasks
    return {**tasks, task: replace(sending, running_count=running_count)}


def running_count(tasks: Tasks) -> int:
    return sum(sending.running_count for sending in tasks.values())


def is_sent_to(tasks: Tasks, *, now_ms: int) -> bool:
    """Whether there is a task that has reported in time."""
    return any(now_ms < sending.until_ms for sending in tasks.values())


def waits(tasks: Tasks, task: str, *, since_ms: int) -> Tasks:
    """The tasks, with this one waiting since that time unless it already waits; 0 ends its wait."""
    sending = tasks[task]
    if bool(sending.waits_since_ms) == bool(since_ms):
        return tasks
    return {**tasks, task: replace(sending, waits_since_ms=since_ms)}


def is_free(
    tasks: Tasks,
    task: str,
    *,
    running_count: int,
    permits: int,
    now_ms: int,
    unasked: int = 0,
) -> bool:
    """Whether a task with `running_count` requests under way may have one more of the permits.

    `unasked` counts the requests of others that no task has reported.
    """
    if running_count >= ceil(permits / len(tasks)):
        return False
    others = [sending for name, sending in tasks.items() if name != task]
    since_ms = tasks[task].waits_since_ms or now_ms
    served_first = sum(
        now_ms - GONE_MS < sending.waits_since_ms < min(since_ms, now_ms - WAIT_MS_MAX)
        for sending in others
    )
    used = running_count + unasked + sum(sending.running_count for sending in others)
    return used + served_first < permits
