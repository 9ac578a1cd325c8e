"""The promises hold in each of 100,000 lives of waiting events, under a simulated clock.

Destinations answer at random, ask for any wait, are away or held; tiers release late, never early.
The seed is fixed: a life that breaks a promise can be repeated.
"""

import random
import sys
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import pytest

from shared.event.envelope import Envelope, History, open_retry_record
from shared.event.record import Origin, RecordIn
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from shared.retry.decision import (
    DeadLetter,
    Hold,
    Hop,
    Park,
    RetryLater,
    RetryLocally,
    Send,
    Situation,
    Split,
    Success,
    Waiting,
    admit,
)
from shared.retry.retry_after import RETRY_AFTER_S_MAX
from shared.retry.routing import route
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import an_envelope, decided

pytestmark = pytest.mark.simulation

SEED = 20_261_121
SCHEDULE = RetrySchedule()
DELAYS_MS = {tier.name: round(tier.delay_s * 1000) for tier in SCHEDULE.tiers}
ROUNDS_MAX = 1 + sum(SCHEDULE.tier_rounds)
TIME_BOX_S = 5.0
# Delays of a release: a look and a micro-batch, and sometimes an outage of hours.
LATE_MS = (0, 0, 300, 1_500, 1_500, 60_000, 7_200_000)
# Whether a destination is held, and which statuses it counts as recoverable.
POLICIES: tuple[tuple[bool, AbstractSet[int]], ...] = (
    (False, frozenset()),
    (False, frozenset()),
    (False, frozenset({408})),
    (True, frozenset()),
)

OK = Response(200)
# Answers of a bad hour, and of a bad week; each life draws from one of them.
MOODS: tuple[tuple[Attempt, ...], ...] = (
    (OK, Response(503), Response(500), NoResponse(Failure.READ_TIMEOUT)),
    (
        NoResponse(Failure.CONNECT_REFUSED),
        NoResponse(Failure.DNS_FAILED),
        Response(502),
        Response(302),
    ),
    (
        Response(429, "1"),
        Response(429, "7"),
        Response(503, "900"),
        Response(429, "86400"),
        Response(503, "99999999"),
        Response(429, "Tue, 14 Nov 2023 22:13:20 GMT"),
    ),
    (
        NoResponse(Failure.BREAKER_OPEN),
        NoResponse(Failure.PAUSED),
        NoResponse(Failure.BUDGET_USED_UP),
        Response(503),
    ),
    (OK, Response(400), Response(401), Response(408), Response(422), Response(503, "-1")),
)
# The probability that the destination's mood changes after an event was parked.
CHANGE = 0.3
START_MS = 1_700_000_000_000


@dataclass
class Life:
    """One event on its way to one destination."""

    dice: random.Random
    mood: tuple[Attempt, ...]
    policy: tuple[bool, AbstractSet[int]]
    now_ms: int = START_MS
    rounds: int = 0
    parks: int = 0
    end: str = ""
    history: History = field(
        default_factory=lambda: History.fresh(now_ms=START_MS, deadline_s=SCHEDULE.deadline_s)
    )

    def clock_ms(self) -> int:
        """Return the time by the sender's clock."""
        return self.now_ms

    def stored(self, _: Waiting, history: History) -> History:
        """Return the history as Kafka returns it."""
        return history

    def live(self) -> None:
        while not self.end:
            self.round()
            # An event that parks forever would live through 8,640 rounds and show nothing new.
            if self.parks and self.dice.random() < CHANGE:
                self.mood, self.policy = self.dice.choice(MOODS), self.dice.choice(POLICIES)

    def round(self) -> None:
        """Run one micro-batch: try in place until there is a final result."""
        assert self.now_ms < self.history.deadline_at_ms, "a round began past the deadline"
        before = self.history
        ends_ms = self.now_ms + round(TIME_BOX_S * 1000)
        batch_count, tries = self.dice.choice((1, 500)), 0
        while True:
            tries += 1
            attempt = self.dice.choice(self.mood)
            is_held, retry_on = self.policy
            situation = Situation(
                batch_count=batch_count,
                may_retry_locally=True,
                local_attempt_count=tries,
                budget_s=(ends_ms - self.now_ms) / 1000,
                now_ms=self.clock_ms(),
                roll=self.dice.random(),
                is_held=is_held,
            )
            match decided(self.history, attempt, SCHEDULE, situation, retry_on=retry_on):
                case RetryLocally(delay_s=delay_s, history=history):
                    self.history = history
                    self.now_ms += round(delay_s * 1000)
                    assert self.now_ms <= ends_ms
                case Split():
                    assert batch_count > 1
                    batch_count = 1
                case Success():
                    self.rounds += 1
                    self.end = "delivered"
                    return
                case DeadLetter(reason=reason, history=history):
                    assert history.attempt_count - before.attempt_count in {0, 1}
                    self.end = reason
                    return
                case Hold():
                    raise AssertionError("an event waits in line without an order")
                case RetryLater(tier=tier, history=history) as waiting:
                    assert history.attempt_count == before.attempt_count + 1
                    self.check_wait(attempt, tier.delay_s, history)
                    self.wait(tier.name, self.stored(waiting, history))
                    self.rounds += 1
                    return
                case Park(tier=tier, history=history) as waiting:
                    assert history.attempt_count == before.attempt_count, "a park was charged"
                    assert history.park_count == before.park_count + 1
                    self.wait(tier.name, self.stored(waiting, history))
                    self.parks += 1
                    return

    def check_wait(self, attempt: Attempt, delay_s: float, history: History) -> None:
        """Check that the event waits as long as the destination asks, but not past the deadline."""
        assert isinstance(attempt, Response | NoResponse)
        asked = getattr(attempt, "retry_after", None) or "0"
        asked_s = min(float(asked), RETRY_AFTER_S_MAX) if asked.isdigit() else 0.0
        now_ms = self.clock_ms()
        last_s = (history.deadline_at_ms - now_ms) / 1000 - 2 * SCHEDULE.tiers[0].delay_s
        assert history.not_before_ms >= now_ms + 1000 * min(asked_s, last_s)
        assert delay_s * 1000 + now_ms < history.deadline_at_ms

    def wait(self, tier: str, history: History) -> None:
        """Rest in tiers until the gate and `admit` release the event."""
        self.history = history
        not_before_ms = max(history.not_before_ms, self.now_ms + DELAYS_MS[tier])
        while True:
            self.now_ms += DELAYS_MS[tier] + self.dice.choice(LATE_MS)
            match admit(self.history, SCHEDULE, now_ms=self.now_ms):
                case Hop(tier=longer, history=after):
                    assert self.now_ms < history.not_before_ms
                    assert after == history, "a hop changed the history"
                    tier = longer.name
                case Send(history=after):
                    assert after == history
                    assert self.now_ms >= not_before_ms, "the event was released early"
                    return
                case DeadLetter(reason=reason):
                    assert self.now_ms >= history.deadline_at_ms
                    self.end = reason
                    return


# 5,000 lives take two seconds and meet every end; a hundred thousand take a minute.
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("lives", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_every_life_ends_delivered_or_dead_never_early_and_never_past_its_deadline(
    lives: int,
) -> None:
    dice = random.Random(SEED)
    ends: Counter[str] = Counter()
    rounds: Counter[int] = Counter()
    for _ in range(lives):
        life = Life(dice, dice.choice(MOODS), dice.choice(POLICIES))
        life.live()
        ends[life.end] += 1
        rounds[life.rounds] += 1
    assert sum(ends.values()) == lives
    assert max(rounds) <= ROUNDS_MAX
    # Each kind of end occurred, so the assertions above were all reached.
    assert set(ends) == {
        *("delivered", "retries_exhausted", "deadline_passed", "destination_refused_retry"),
        *("status_400", "status_401", "status_408", "status_422"),
    }
    assert rounds[ROUNDS_MAX] > 0 or ends["retries_exhausted"] > 0


HOUR_MS = 3_600_000
ENVELOPE = an_envelope()


@dataclass
class LifeUnderAWrongClock(Life):
    """The first sender has its own clock; later ones ask the broker, which stamps records."""

    wrong_by_ms: int = 0

    def __post_init__(self) -> None:
        self.history = History.fresh(now_ms=self.clock_ms(), deadline_s=SCHEDULE.deadline_s)

    def clock_ms(self) -> int:
        is_first = self.rounds + self.parks == 0
        return self.now_ms + (self.wrong_by_ms if is_first else 0)

    def stored(self, waiting: Waiting, history: History) -> History:
        row = route(waiting, ENVELOPE, "orders/shop", now_ms=self.clock_ms())
        place = Origin(row.topic, 0, 0)
        read = open_retry_record(RecordIn(place, self.now_ms, row.key, row.value, row.headers))
        assert isinstance(read, Envelope)
        assert read.history is not None
        wait_ms = history.not_before_ms - self.clock_ms()
        assert read.history.not_before_ms == self.now_ms + wait_ms, "a wait has another length"
        return read.history

    def wait(self, tier: str, history: History) -> None:
        begun_ms = self.now_ms
        asked_ms = max(DELAYS_MS[tier], history.not_before_ms - begun_ms)
        super().wait(tier, history)
        late_ms = self.now_ms - begun_ms - asked_ms
        assert late_ms <= asked_ms, "the event is late by more than its wait"


def test_a_clock_that_is_wrong_by_up_to_an_hour_makes_no_try_early_and_none_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "LATE_MS", (0, 300))
    dice = random.Random(SEED)
    ends: Counter[str] = Counter()
    for nth in range(1_000):
        wrong_by_ms = (-HOUR_MS, HOUR_MS, dice.randint(-HOUR_MS, HOUR_MS))[nth % 3]
        mood, policy = dice.choice(MOODS), dice.choice(POLICIES)
        life = LifeUnderAWrongClock(dice, mood, policy, wrong_by_ms=wrong_by_ms)
        life.live()
        ends[life.end] += 1
    assert ends.total() == 1_000
    assert ends["delivered"] > 100
