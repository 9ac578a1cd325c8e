"""The retrier is killed repeatedly while 20,000 events wait: none is lost, or tried too often."""

import random
import time
from dataclasses import replace

import pytest

from shared.config.destination import Destination
from shared.retry.schedule import RetrySchedule
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    Script,
    always,
    scripted_destination,
)

pytestmark = pytest.mark.integration

WAITING = 20_000
ATTEMPTS_MAX = 1 + sum(RetrySchedule().tier_rounds)
# Each process is killed this long, or up to twice as long, after it is up.
LIFE_S = 1.0
SEED = 20_261_121


def moody(dice: random.Random) -> Script:
    """Answer slowly, so that kills fall between requests, and sometimes with a failure."""

    def answer(_: int, __: Request) -> Reply:
        return Reply(503 if dice.random() < 0.1 else 200, delay_s=0.02)

    return answer


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("kills", [3, 30])
def test_kills_lose_nothing_and_cost_no_attempt(hifi: RunningHifi, kills: int) -> None:
    dice = random.Random(SEED)
    stream = f"kills{kills}"
    waiting = WAITING if kills > 3 else WAITING // 10
    events = [{"id": f"e{n}"} for n in range(waiting)]
    with scripted_destination(always(503)) as destination:
        to = Destination(stream=stream, name="to", url=destination.url)
        hifi.add(to)
        for start in range(0, waiting, 1_000):
            assert hifi.post(stream, events[start : start + 1_000]).status_code == 200
        hifi.wait_for_balance(to.id, lambda b: b.waiting == waiting, what="all events wait")
        # While the destination is paused, every event circulates in its tier, uncharged.
        hifi.change(replace(to, is_paused=True))
        destination.script = moody(dice)
        for number in range(kills):
            if number == kills // 3:
                hifi.change(replace(to, is_paused=False, batch_count_max=20))
            time.sleep(LIFE_S * (1 + dice.random()))
            victim = hifi.stack.children["retrier"]
            victim.kill()
            hifi.revive("retrier")
            assert hifi.stack.children["retrier"] is not victim
        wait_until(
            lambda: hifi.balance(to.id).delivered == waiting,
            what=lambda: f"all are delivered; the books: {hifi.balance(to.id)}",
            timeout_s=900,
            look_s=1.0,
        )
        assert set(destination.accepted_ids) == {event["id"] for event in events}
        balance = hifi.balance(to.id)
        assert (balance.unaccounted, balance.waiting, balance.dead) == (0, 0, 0)
        attempts = [int(request.headers["hifi-attempt"]) for request in destination.requests]
        assert max(attempts) <= ATTEMPTS_MAX
        twice = {event for event, count in destination.accepted_ids.items() if count > 1}
        seen: set[str] = set()
        for request in destination.accepted:
            ids = {event["id"] for event in request.events}
            # The first of two copies may be unlabelled; each later one is labelled.
            if ids & seen & twice:
                assert request.headers.get("hifi-maybe-duplicate") == "1"
            seen |= ids
