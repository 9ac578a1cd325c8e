"""Processes that try pipelines and channels, seen by a gateway: through a topic in memory."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.intake.events import Event
from gateway.publish.publisher import Publisher
from observe.notify.channel_trials import ChannelTrials
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import TRIALS
from shared.event.trial import TrialAnswer, TrialAsked, read_trial
from shared.runtime.channels.sending import ChannelSender
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.kafka.memory_topic import Take


@dataclass
class Trier:
    """Gives the same answer to all requests, and keeps them."""

    publisher: FakePublisher
    answer: TrialAnswer
    asked: list[TrialAsked] = field(default_factory=list)

    def take(self, records: Sequence[RecordIn]) -> None:
        for record in records:
            if record.value == b"nonsense":
                continue
            asked = read_trial(record.value)
            if isinstance(asked, TrialAsked):
                self.asked.append(asked)
                # Gateways ignore a value that is not an answer, and answers to others.
                for key, value in (
                    (record.key, b"nonsense"),
                    (b"another", TrialAnswer("not for you").to_bytes()),
                    (record.key, self.answer.to_bytes()),
                    (record.key, TrialAnswer("too late").to_bytes()),
                ):
                    event = Event.of(id="", key=key, value=value, headers=())
                    self.publisher.told.publish(TRIALS, [event])


@contextmanager
def trier(publisher: Publisher, answer: TrialAnswer) -> Iterator[Trier]:
    """Run a trier in a thread of its own, until the end of the block."""
    trying = Trier(_known(publisher), answer)
    with _followed(trying.publisher, trying.take):
        yield trying


@contextmanager
def observer(publisher: Publisher, sender: ChannelSender) -> Iterator[None]:
    """Run observe's part that tries channels, in a thread of its own."""

    async def answer(row: RecordOut) -> None:
        event = Event.of(id="", key=row.key, value=row.value, headers=())
        _known(publisher).told.publish(row.topic, [event])

    with _followed(_known(publisher), ChannelTrials(sender, answer).take):
        yield


def _known(publisher: Publisher) -> FakePublisher:
    assert isinstance(publisher, FakePublisher)
    return publisher


@contextmanager
def _followed(publisher: FakePublisher, take: Take) -> Iterator[None]:
    # Nobody waits for earlier requests any more.
    publisher.told.logs[TRIALS].clear()
    begun, ended = threading.Event(), threading.Event()

    async def run() -> None:
        with publisher.told.followed({TRIALS: take}):
            begun.set()
            while not ended.is_set():  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.005)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert begun.wait(10)
        yield
    finally:
        ended.set()
        thread.join(10)
