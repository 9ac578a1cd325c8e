"""Seeded histories of a lane whose owners die between outcomes and mark, beside a retrier.

Each event must arrive. A second arrival must be labelled; without a death no event may be labelled.
"""

from contextlib import ExitStack
from random import Random

import pytest

from delivery.lanes.units import Span
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import RETRY_PREFIX
from tests.component.retrier.test_second_copies import Second, second_arrivals
from tests.support.delivery.deliver_runs import events, run
from tests.support.servers.scripted_destination import Reply, always


class CopyHistory(Second):
    """One seeded history."""

    def live(self, dice: Random) -> int:
        """Play the history, and return how often an owner has died."""
        self.waiting: list[RecordOut] = []
        self.seen = self.retried = 0
        count = dice.randint(1, 5)
        self.kafka.write(events(count))
        answers = [dice.choice((200, 503, 503)) for _ in range(60)]
        self.destination("a", lambda nth, _: Reply(answers[nth % len(answers)]))
        deaths = dice.choice((0, 0, 1, 2, 3))
        if deaths:
            self.lane_dies(Span(0, count))
        else:
            assert self.run(a=Span(0, count))["a"].at == count
        for left in range(deaths - 1, -1, -1):
            self.maybe_retry(dice)
            self.next_owner(dies=left > 0)
        self.maybe_retry(dice)
        self.to["a"].script = always(200)
        self.retry()
        assert {event for event, _ in self.came()} == {f"e{n}" for n in range(count)}
        return deaths

    def maybe_retry(self, dice: Random) -> None:
        if dice.random() < 0.5:
            self.retry()

    def retry(self) -> None:
        """Have the retrier send all waiting events; those that are not accepted wait again."""
        new = [row for row in self.outlet.rows[self.seen :] if row.topic.startswith(RETRY_PREFIX)]
        self.seen = len(self.outlet.rows)
        self.waiting += new
        due = self.waiting[self.retried :]
        records = [
            RecordIn(Origin(row.topic, 0, self.retried + n), 0, row.key, row.value, row.headers)
            for n, row in enumerate(due)
        ]
        self.retried = len(self.waiting)
        if records:
            rows = run(records, self.plan(self.doubts()))
            self.waiting += [row for row in rows if row.topic.startswith(RETRY_PREFIX)]


# A dozen histories in each test run, a thousand on request.
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 1_012), marks=pytest.mark.long)], ids=len
)
@pytest.mark.timeout(1_800)
def test_what_arrives_again_says_so_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    died: list[int] = []
    labelled = 0
    for seed in seeds:
        with ExitStack() as resources:
            lived = CopyHistory(monkeypatch, resources)
            died.append(lived.live(Random(seed)))
            came = lived.came()
        again = second_arrivals(came)
        assert all(says for _, says in again), f"history {seed}: {came}"
        says_so = [each for each, says in came if says]
        assert died[-1] or not says_so, f"history {seed}: {says_so} labelled, though nobody died"
        labelled += len(again)
    assert 0 in died
    assert max(died) > 1
    assert labelled > 0
