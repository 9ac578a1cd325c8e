"""Where dead letters rest: how the routes read them and have them sent again."""

from typing import Protocol

from shared.retry.dead_letter import DeadLetterFilter, Place
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.dead_letters import (
    DeadLetterPage,
    Redriven,
    count_redrive,
    open_dead_letters,
    redrive,
)

# Some 50,000 records are read in a second (measured with 300 bytes each).
_SCAN_MAX = 50_000
# A re-drive answers before the 30 s after which clients commonly give up.
_REDRIVE_S_MAX = 20.0


class DeadLetterStore(Protocol):
    """Where dead letters rest."""

    async def page(
        self, wanted: DeadLetterFilter, *, after: Place | None, count_max: int
    ) -> tuple[DeadLetterPage, set[Place]]:
        """Some of them, and which have been sent again."""

    async def count(self, wanted: DeadLetterFilter, *, count_max: int | None) -> Redriven:
        """What a re-drive would come to."""

    async def redrive(
        self, wanted: DeadLetterFilter, *, redrive_id: str, rate_per_s: float, count_max: int | None
    ) -> Redriven:
        """Send them again."""


class KafkaDeadLetters:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    async def page(
        self, wanted: DeadLetterFilter, *, after: Place | None, count_max: int
    ) -> tuple[DeadLetterPage, set[Place]]:
        async with open_dead_letters(self._bootstrap_servers) as letters:
            page = await letters.page(wanted, after=after, count_max=count_max, scan_max=_SCAN_MAX)
            return page, await letters.redriven()

    async def count(self, wanted: DeadLetterFilter, *, count_max: int | None) -> Redriven:
        return await count_redrive(self._bootstrap_servers, wanted, count_max=count_max)

    async def redrive(
        self, wanted: DeadLetterFilter, *, redrive_id: str, rate_per_s: float, count_max: int | None
    ) -> Redriven:
        return await redrive(
            self._bootstrap_servers,
            wanted,
            redrive_id=redrive_id,
            schedule=RetrySchedule(),
            rate_per_s=rate_per_s,
            count_max=count_max,
            duration_s_max=_REDRIVE_S_MAX,
        )
