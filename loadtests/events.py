"""Makes the events of a load test, and finds them again in any bytes.

Their size is exact. Each has a number that is unique in its run and worker, and the time it was
due, so a receiver can tell by itself which events are missing and how long each took.
"""

import json
import re
from dataclasses import dataclass
from itertools import chain, repeat

from loadtests.recorder import Range

# 10 digits allow 10 billion events of one worker; all numbers have the same length.
_EVENT = b'{"id":"%s-%d-%%010d","due_us":%%d,"pad":"%s"}'
_SHORTEST = len(_EVENT % (b"", 0, b"") % (0, 10**15))
# Statuses that mean all events are stored. A 207 lists the others; a 202 promises less.
_STORED, _PARTIAL = frozenset({200, 204}), 207
_FOUND = re.compile(rb'"id":"(\w+)-(\d+)-(\d{10})","due_us":(\d+)')


@dataclass(frozen=True, slots=True)
class SinkEvent:
    """An event that has arrived: its run, worker, number and due time."""

    run: bytes
    worker: int
    number: int
    due_us: int


class Bodies:
    """Makes the bodies of one worker's requests."""

    def __init__(self, run: str, worker: int, *, batch: int, event_bytes: int) -> None:
        head = len(_EVENT % (run.encode(), worker, b"") % (0, 10**15))
        event = _EVENT % (run.encode(), worker, b"x" * max(0, event_bytes - head))
        self._batch = batch
        self._template = b"[" + b",".join([event] * batch) + b"]"

    def body(self, first: int, due_us: int) -> bytes:
        """Return the body of a request whose events start at this number."""
        numbers = range(first, first + self._batch)
        return self._template % tuple(chain.from_iterable(zip(numbers, repeat(due_us))))


def smallest_bytes(run: str) -> int:
    """Return the smallest possible size of an event."""
    return _SHORTEST + len(run)


def find(data: bytes) -> list[SinkEvent]:
    """Find the events of load tests in a request or a record, in any surrounding bytes."""
    return [
        SinkEvent(run, int(worker), int(number), int(due_us))
        for run, worker, number, due_us in _FOUND.findall(data)
    ]


def acked_of(status: int, answer: bytes, first: int, batch: int) -> list[Range]:
    """Return the events of a request that the gateway reported as stored."""
    if status == _PARTIAL:
        others = {each["index"] for each in json.loads(answer)["results"]}
        stored = (first + index for index in range(batch) if index not in others)
        return [(number, number + 1) for number in stored]
    return [(first, first + batch)] if status in _STORED else []
