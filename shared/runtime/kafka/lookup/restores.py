"""Reads the reports of restores from their topic, which is small enough to read whole."""

import time
from math import inf

from shared.event.topics import RESTORES
from shared.proof.restored import Restores
from shared.runtime.kafka.reader import KafkaReader, open_reader


async def read_restores(log: KafkaReader, *, until_s: float = inf) -> Restores | None:
    """Read all reports; return None if there was not enough time."""
    restores = Restores()
    read = log.range(await log.spans([RESTORES]))
    left = await read.each(lambda record: restores.take(record.value), until_s=until_s)
    return None if left else restores


async def find_restores(bootstrap_servers: str, *, search_s: float) -> Restores | None:
    """Read all reports over a new connection."""
    until_s = time.monotonic() + search_s
    async with open_reader(bootstrap_servers) as log:
        return await read_restores(log, until_s=until_s)
