"""Sends trials of pipelines and channels to the services that run them, and reads the answers."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any, TypeVar

from gateway.intake.events import Event
from gateway.publish.publisher import Publisher
from shared.event.record import RecordIn
from shared.event.topics import TRIALS
from shared.event.trial import (
    ANSWER_WITHIN_S,
    Answered,
    Asked,
    ChannelAnswer,
    ChannelAsked,
    TrialAnswer,
    TrialAsked,
)
from shared.runtime.kafka.tail import readable_trials

A = TypeVar("A", bound=Answered)


class TrialNews:
    """Trials that are running. `take` needs all records of the topic."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._waiting: dict[bytes, asyncio.Future[Any]] = {}

    async def of_pipeline(self, asked: TrialAsked) -> TrialAnswer | None:
        """Return the trial's result; None if no answer came in time."""
        return await self._ask(asked, TrialAnswer)

    async def of_channel(self, asked: ChannelAsked) -> ChannelAnswer | None:
        """Return the channel's answer; None if none came in time."""
        return await self._ask(asked, ChannelAnswer)

    async def _ask(self, asked: Asked, kind: type[A]) -> A | None:
        key = uuid.uuid4().bytes
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[key] = waiting
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                # A request that Kafka does not store gets no answer, and times out.
                event = Event.of(id="", key=key, value=asked.to_bytes(), headers=())
                await self._publisher.publish(TRIALS, [event])
                answer = await waiting
                return answer if isinstance(answer, kind) else None
        except TimeoutError:
            return None
        finally:
            del self._waiting[key]

    def take(self, records: Sequence[RecordIn]) -> None:
        """Process the next records of the topic, which include other gateways'."""
        # Skip answers that no request here waits for.
        ours = (record for record in records if self._is_waited_for(record))
        for record, trial in readable_trials(ours):
            if isinstance(trial, Answered):
                self._waiting[record.key or b""].set_result(trial)

    def _is_waited_for(self, record: RecordIn) -> bool:
        waiting = self._waiting.get(record.key or b"")
        return waiting is not None and not waiting.done()
