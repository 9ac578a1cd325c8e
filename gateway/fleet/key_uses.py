"""Knows to the minute when each text of a key was last used, at this or another gateway.

A request only notes its time in memory. Once a minute a process publishes the uses that no process
has published in that minute: about one record a minute for each text in use (ADR 0101).
"""

import asyncio
from collections.abc import Sequence

import structlog

from gateway.intake.events import Event
from gateway.publish.publisher import Publisher
from shared.config.access import Secret
from shared.event.record import RecordIn
from shared.event.times import MINUTE_MS
from shared.event.topics import USES

log = structlog.get_logger()

_TELL_S = 60.0


class KeyUses:
    """Times of keys' last uses. `take` needs all records of the topic."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        # Fingerprint of the text -> milliseconds; each request writes here.
        self.here: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def last_ms(self, secret: Secret) -> int | None:
        """Return when a text was last used, as far as is known; None if not within a year."""
        return max(uses.get(secret.fingerprint, 0) for uses in (self.here, self._told)) or None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_TELL_S)
            await self.tell()

    async def tell(self) -> None:
        """Publish each new use until its record is read back, as a record may be lost."""
        news = [
            Event.of(id="", key=fingerprint.encode(), value=b"%d" % at_ms, headers=())
            for fingerprint, at_ms in self.here.items()
            if fingerprint and at_ms // MINUTE_MS > self._told.get(fingerprint, 0) // MINUTE_MS
        ]
        if news:
            await self._publisher.publish(USES, news)

    def take(self, records: Sequence[RecordIn]) -> None:
        """Process the next records of the topic."""
        for record in records:
            try:
                fingerprint, at_ms = (record.key or b"").decode(), int(record.value)
            except ValueError as error:
                log.warning("uses.record_refused", origin=record.origin, error=str(error))
                continue
            # Cap the time at Kafka's, so that a fast clock does not hide later uses.
            at_ms = min(at_ms, record.timestamp_ms)
            self._told[fingerprint] = max(at_ms, self._told.get(fingerprint, 0))
