"""Sends test messages at a gateway's request, and returns each channel's answer.

Observe sends them, as it sends all other messages: the gateway may be in another network.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

import structlog

from shared.config.outside.channel import Channel
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import TRIALS
from shared.event.trial import ANSWER_WITHIN_S, ChannelAnswer, ChannelAsked
from shared.runtime.channels.message import trial_message
from shared.runtime.channels.sending import ChannelSender
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import new_producer, running
from shared.runtime.kafka.tail import Tail, readable_trials

log = structlog.get_logger()

# Each trial holds a connection for seconds. A tenant may run a few at once, over all gateways.
_AT_ONCE_MAX, _OF_A_TENANT_MAX = 64, 4
_FRESH_MS = round(1_000 * ANSWER_WITHIN_S)
_READ_MAX = 1_000
Answer = Callable[[RecordOut], Awaitable[None]]


class ChannelTrials:
    """Runs the requested trials in the active observer, until it is cancelled."""

    def __init__(self, sender: ChannelSender, answer: Answer) -> None:
        self._sender, self._answer = sender, answer
        self._turns = asyncio.Semaphore(_AT_ONCE_MAX)
        # One for each tenant with running or waiting trials; dropped after the last of them.
        self._own_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, tail: Tail) -> None:
        try:
            await tail.run(self.take)
        finally:
            for task in self._tasks:
                task.cancel()

    def take(self, records: Sequence[RecordIn]) -> None:
        """Take the next records of the topic, and start the trials that nobody has answered."""
        asked: dict[bytes | None, tuple[RecordIn, ChannelAsked]] = {}
        for record, read in readable_trials(records):
            if isinstance(read, ChannelAsked):
                asked[record.key] = record, read
            elif isinstance(read, ChannelAnswer):
                # The previously active observer has answered it.
                asked.pop(record.key, None)
        for question in asked.values():
            task = asyncio.create_task(self._try(*question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _try(self, record: RecordIn, asked: ChannelAsked) -> None:
        try:
            channel = Channel.of(json.loads(bytes(asked.document)))
            own = self._own_turns.setdefault(channel.tenant, asyncio.Semaphore(_OF_A_TENANT_MAX))
            async with own, self._turns:
                if record.timestamp_ms + _FRESH_MS < now_ms():
                    return
                answer = await self._sender.send(channel, trial_message(channel), now_ms=now_ms())
                await self._answer(RecordOut(TRIALS, record.key, answer.to_bytes()))
        except Exception as error:  # noqa: BLE001 - the gateway then reports that nobody answers
            log.warning("channel_trial.failed", origin=record.origin, error=repr(error)[:500])


def channel_trials(bootstrap_servers: str, sender: ChannelSender) -> Callable[[], Awaitable[None]]:
    """Return the active observer's task; trials are rare, so each gets its own producer."""

    async def answer(row: RecordOut) -> None:
        async with running(new_producer(bootstrap_servers), bootstrap_servers) as producer:
            await producer.send_and_wait(row.topic, row.value, key=row.key)

    async def run() -> None:
        tail = Tail(bootstrap_servers, TRIALS, back_ms=_FRESH_MS, records_max=_READ_MAX)
        await ChannelTrials(sender, answer).run(tail)

    return run
