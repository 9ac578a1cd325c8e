"""Writes and reads how long a task may follow its logs.

A task ends at its time, unless a record in Kafka has given it more. So a task ends if its driver
writes no such record, because the driver has ended or has changed settings.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import msgspec

from delivery.lanes.units import Unit
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import TERMS
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import LogClient

TERMS_LOG = KafkaPartition(TERMS, 0)
# How long the broker may hold a fetch that finds nothing.
_WAIT_MS = 500


class Term(msgspec.Struct, frozen=True):
    """The new values of two of a task's orders."""

    # Counted from the task's start.
    follow_s: float
    ours_until_ms: int


_DECODER = msgspec.json.Decoder(Term)


def number_of(units: Iterable[Unit]) -> int:
    """Return the number of these units' job; 0 if none of them follows its log."""
    spans = (span for unit in units for span in unit.spans.values())
    return min((span.number for span in spans if span.end is None), default=0)


def term_record(number: int, term: Term) -> RecordOut:
    return RecordOut(TERMS, b"%d" % number, msgspec.json.encode(term))


async def terms_of(number: int, log: LogClient, node: int, at: int) -> AsyncIterator[Term]:
    """Yield the terms for a job from an offset on; on an error they end, and so does the job."""
    with suppress(*AWAY, msgspec.MsgspecError):
        while True:
            # On a separate connection, as a broker answers each connection's requests in turn.
            answers = await log.fetch(node, {TERMS_LOG: at}, wait_ms=_WAIT_MS, connection=1)
            answer = answers[TERMS_LOG]
            if answer.error is not None:
                return
            for record in answer.records:
                if record.key == b"%d" % number:
                    yield _DECODER.decode(record.value)
            at = answer.reached
