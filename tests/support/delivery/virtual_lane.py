"""Tasks with endless work for one destination, in simulated time."""

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.flow.breaker import Start
from shared.flow.flow import EndedRequest, Flow, SendLimits, after_attempt
from shared.flow.starting import NotNow, may_start, running, started
from shared.retry.attempt import Attempt, classify
from tests.support.suite.samples import NOW_MS

# The answer to a request that arrives at a time, and the milliseconds until it comes.
Answering = Callable[[float], tuple[Attempt, float]]


@dataclass
class VirtualLane:
    """Sends as fast as the flow allows; a test overrides the notes to know what happens."""

    answer: Answering
    limits: SendLimits
    task_count: int = 1
    batch_count: int = 1
    flow: Flow = field(default_factory=Flow)

    def note_sent(self, at_ms: float, running_count: int) -> None:
        """Note a request that goes out, and how many are under way with it."""

    def note_ended(self, at_ms: float, attempt: Attempt) -> None:
        """Note a request that has ended, after the flow has heard of it."""

    def live(self, seconds: float) -> None:
        """Send until time is over, or the destination is disabled."""
        dice = random.Random(7)
        under_way: list[tuple[float, int, Attempt, float, bool, int]] = []
        counts, wakes = [0] * self.task_count, [0.0] * self.task_count
        at_ms, number = 0.0, 0
        while at_ms < seconds * 1000:
            now_ms = NOW_MS + int(at_ms)
            while under_way and under_way[0][0] <= at_ms:
                _, _, attempt, took_ms, is_probe, task = heapq.heappop(under_way)
                ended = EndedRequest(
                    attempt, classify(attempt), self.batch_count, took_ms, took_ms, is_probe
                )
                self.flow = after_attempt(
                    self.flow, self.limits, ended, now_ms=now_ms, roll=dice.random()
                )
                counts[task] -= 1
                wakes[task] = at_ms
                self.note_ended(at_ms, attempt)
            for task in dice.sample(range(self.task_count), self.task_count):
                while wakes[task] <= at_ms:
                    self.flow, answer = may_start(
                        self.flow,
                        self.limits,
                        task=str(task),
                        running_count=counts[task],
                        now_ms=now_ms,
                    )
                    if isinstance(answer, NotNow):
                        wakes[task] = max(at_ms + 1, answer.until_ms - NOW_MS)
                        break
                    if not isinstance(answer, Start):
                        return
                    self.flow = started(
                        self.flow, self.limits, event_count=self.batch_count, now_ms=now_ms
                    )
                    attempt, took_ms = self.answer(at_ms)
                    number += 1
                    counts[task] += 1
                    ends = at_ms + took_ms, number, attempt, took_ms, answer.is_probe, task
                    heapq.heappush(under_way, ends)
                    self.note_sent(at_ms, sum(counts))
                self.flow = running(self.flow, str(task), counts[task])
            at_ms = max(at_ms + 0.01, min([*wakes, under_way[0][0] if under_way else math.inf]))
