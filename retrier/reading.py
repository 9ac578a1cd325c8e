"""Reads the next records of a Kafka partition, from its leader."""

import asyncio
import time
from contextlib import suppress

from shared.event.record import KafkaPartition
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.log_client import FetchAnswer, LogClient
from shared.runtime.setup_error import KafkaUnavailableError

# Due events already exist, so no fetch waits for them on a connection that others share.
_WAIT_MS = 50
# A broker that returns no records to read for this long is down.
_SILENCE_S_MAX = 30.0
_AGAIN_S = 0.2


class DataGoneError(Exception):
    """The events to read are not in the log."""


async def read_next(log: LogClient, where: KafkaPartition, at: int) -> FetchAnswer:
    """Return some of the records from an offset on; retry while a temporary fault lasts."""
    until_s, why = time.monotonic() + _SILENCE_S_MAX, "Kafka returns nothing"
    while time.monotonic() < until_s:
        answer = FetchAnswer(reached=at)
        try:
            node = log.leaders([where]).get(where)
            if node is not None:
                answer = (await log.fetch(node, {where: at}, wait_ms=_WAIT_MS))[where]
            else:
                why = f"{where.topic} has no leader just now"
        except AWAY as error:
            why = repr(error)
        if answer.is_gone:
            raise DataGoneError(f"Kafka has no event at {at}")
        if answer.is_moved:
            why = repr(answer.error)
        elif answer.error is not None:
            raise answer.error
        elif answer.reached > at:
            return answer
        await asyncio.sleep(_AGAIN_S)
        with suppress(*AWAY):
            # A request for the end also finds the leader.
            await log.ends([where])
    raise KafkaUnavailableError(f"{why}, for {_SILENCE_S_MAX:g} s")
