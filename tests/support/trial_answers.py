"""Whoever runs pipelines, as a gateway meets them: answers what is asked in a topic in memory."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.intake.events import Event
from gateway.publish.publisher import Publisher
from shared.event.record import RecordIn
from shared.event.topics import TRIALS
from shared.event.trial import TrialAnswer, TrialAsked, read_trial
from tests.support.fake_publisher import FakePublisher


@dataclass
class Trier:
    """Gives one answer to all, and knows what was asked."""

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
                # What is none, and what another was told, is passed over.
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
    """In a thread of its own, until the end of the block."""
    assert isinstance(publisher, FakePublisher)
    # What was asked before is nobody's any more.
    publisher.told.logs[TRIALS].clear()
    trying, begun, ended = Trier(publisher, answer), threading.Event(), threading.Event()

    async def run() -> None:
        with publisher.told.followed({TRIALS: trying.take}):
            begun.set()
            while not ended.is_set():  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.005)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert begun.wait(10)
        yield trying
    finally:
        ended.set()
        thread.join(10)
