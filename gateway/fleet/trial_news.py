"""Has pipelines tried by whoever runs them, and hears what came of it."""

import asyncio
import uuid
from collections.abc import Sequence

import structlog

from gateway.intake.events import Event
from gateway.publish.publisher import Publisher
from shared.event.record import RecordIn
from shared.event.topics import TRIALS
from shared.event.trial import TrialAnswer, TrialAsked, read_trial

log = structlog.get_logger()

# Below what the console waits for a gateway: Spark starts within 10 s, and tries within 5.
_ANSWER_S = 25.0


class TrialNews:
    """Trials that are under way. `take` must be shown the topic's records."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._waiting: dict[bytes, asyncio.Future[TrialAnswer]] = {}

    async def ask(self, asked: TrialAsked) -> TrialAnswer | None:
        """What came of it; None if nobody has said so in time."""
        key = uuid.uuid4().bytes
        answer: asyncio.Future[TrialAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            async with asyncio.timeout(_ANSWER_S):
                # What is not stored, nobody answers.
                event = Event.of(id="", key=key, value=asked.to_bytes(), headers=())
                await self._publisher.publish(TRIALS, [event])
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[key]

    def take(self, records: Sequence[RecordIn]) -> None:
        """The next records of the topic, with those of others."""
        for record in records:
            answer = self._waiting.get(record.key or b"")
            if answer is None or answer.done():
                continue
            try:
                told = read_trial(record.value)
            except ValueError as error:
                log.warning("trials.record_refused", origin=record.origin, error=str(error))
                continue
            if isinstance(told, TrialAnswer):
                answer.set_result(told)
