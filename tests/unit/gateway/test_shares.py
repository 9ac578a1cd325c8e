"""A tenant's quota over many gateways: what each may admit, even while the load moves."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.quota import Quotas
from gateway.fleet.shares import FORGET_MS, TELL_S, Demand, Members, ShareNews
from gateway.problems import Problem
from shared.config.access import Tenant
from shared.shares import share

amounts = st.floats(0, 1e6)


def shares(rate: float, *wants: float) -> list[float]:
    found = []
    for nth, mine in enumerate(wants):
        others = [*wants[:nth], *wants[nth + 1 :]]
        found.append(share(rate, mine=mine, others=others))
    return [round(each, 3) for each in found]


def test_who_is_alone_has_all() -> None:
    assert shares(100, 0) == shares(100, 20) == shares(100, 10_000) == [100]


def test_who_wants_less_than_an_even_part_gets_it_and_the_rest_is_shared_evenly() -> None:
    assert shares(100, 10, 500, 500) == [10, 45, 45]
    assert shares(100, 500, 20, 500, 30) == [26.667, 20, 26.667, 26.667]
    assert shares(100, 500, 20) == [80, 20]
    assert shares(100, 200, 300) == [50, 50]


def test_what_nobody_wants_is_spread() -> None:
    assert shares(100, 40, 20) == [60, 40]
    assert shares(100, 0, 0) == [50, 50]
    assert shares(100, 1_000, 0) == [100, 0]


@given(amounts.filter(lambda rate: rate > 1), st.lists(amounts, min_size=1, max_size=20))
def test_shares_add_up_to_the_quota_and_nobody_starves(rate: float, wants: list[float]) -> None:
    found = shares(rate, *wants)
    assert sum(found) == pytest.approx(rate, rel=1e-3, abs=0.01 * len(wants))
    for want, given_ in zip(wants, found, strict=True):
        assert given_ >= min(want, rate / len(wants)) - 0.01, "an even part is not given"


def news(**wants: float) -> bytes:
    return ShareNews({name: {"events": want} for name, want in wants.items()}).to_bytes()


def test_members_are_who_has_told_something_lately_by_the_logs_clock() -> None:
    members = Members(b"me")
    members.take(b"me", news(acme=7), 0)
    members.take(b"a", news(acme=5), 0)
    members.take(b"b", news(other=5), 1_000)
    assert members.wants("acme", "events") == [5, 0]
    assert members.wants("acme", "bytes") == [0, 0]
    members.take(b"b", news(), FORGET_MS)
    assert members.wants("acme", "events") == [5, 0]
    # Our own record shows the log's time, too.
    members.take(b"me", news(), FORGET_MS + 1)
    assert members.wants("acme", "events") == [0]
    members.take(b"b", ShareNews(is_leaving=True).to_bytes(), FORGET_MS + 2)
    assert members.wants("acme", "events") == []
    with pytest.raises(ValueError, match="JSON"):
        members.take(b"a", b"nonsense", FORGET_MS + 3)


def test_demand_counts_what_was_refused_and_rises_at_once() -> None:
    demand = Demand()
    assert demand.wants(0) == {}
    assert [demand.ask(10.0) for _ in range(100)] == [True] + [False] * 99
    demand.use("events", 10)
    demand.use("events", 20)
    assert demand.wants(10.1) == {"requests": 400, "events": 400 * 11}, "100 in a quarter second"
    assert demand.wants(11)["requests"] == 100
    demand.roll(11)
    assert demand.wants(11)["requests"] == 100
    assert not demand.ask(11.9), "a small increase is not news"
    assert demand.wants(11.9)["requests"] == 100
    demand.roll(12)
    demand.roll(13)
    assert demand.wants(13) == {}


STEP_S = 0.01
# Seconds until a record is seen everywhere.
LATE_S = 0.05
QUOTA = 2_000
TENANT = Tenant("acme", events_per_s=QUOTA)


@dataclass
class SimulatedGateway:
    """A gateway process that admits what it may, and publishes its wants as the real one does."""

    name: bytes
    dice: random.Random
    # Events in a request.
    batch: int = 5
    admitted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    is_urgent: bool = False
    told_at_s: float = 0.0

    def __post_init__(self) -> None:
        self.members = Members(self.name)
        self.quotas = Quotas(self.members, self.wake)

    def wake(self) -> None:
        self.is_urgent = True

    def serve(self, events_per_s: float, now_s: float) -> None:
        per_step = events_per_s / self.batch * STEP_S
        whole = int(per_step) + (self.dice.random() < per_step % 1)
        for _ in range(whole):
            try:
                self.quotas.admit(TENANT, now_s=now_s)
            except Problem:
                self.refused.append(now_s)
            else:
                self.quotas.use(TENANT, events=self.batch, byte_count=0, now_s=now_s)
                self.admitted.append(now_s)

    def news(self, now_s: float) -> bytes | None:
        since_s = now_s - self.told_at_s
        if since_s < TELL_S and not (self.is_urgent and since_s >= 0.1):
            return None
        self.told_at_s, self.is_urgent = now_s, False
        return self.quotas.news(now_s=now_s).to_bytes()


Load = Callable[[int, float], float]


def simulate(count: int, load: Load, *, until_s: float, batch: int = 5) -> list[SimulatedGateway]:
    """Run gateways under a load: the events per second at each, by its number and the time."""
    dice = random.Random(1)
    fleet = [SimulatedGateway(b"%d" % n, random.Random(n), batch) for n in range(count)]
    for each in fleet:
        each.told_at_s = -dice.random()
    under_way: deque[tuple[float, bytes, bytes]] = deque()
    now_s = 0.0
    while now_s < until_s:
        now_s += STEP_S
        while under_way and under_way[0][0] <= now_s:
            _, who, raw = under_way.popleft()
            for each in fleet:
                each.members.take(who, raw, round(now_s * 1000))
        for nth, each in enumerate(fleet):
            each.serve(load(nth, now_s), now_s)
            if (raw_news := each.news(now_s)) is not None:
                under_way.append((now_s + LATE_S, each.name, raw_news))
    return fleet


def admitted(fleet: list[SimulatedGateway], begin_s: float, end_s: float) -> float:
    """Return the admitted events per second as a part of the quota."""
    count = sum(each.batch * sum(begin_s < at <= end_s for at in each.admitted) for each in fleet)
    return count / (end_s - begin_s) / QUOTA


def _skewed(nth: int, _now_s: float) -> float:
    """Offer three times the quota, nine tenths of it at one gateway."""
    return 5_400 if nth == 0 else 600


def _even(_nth: int, _now_s: float) -> float:
    return 1_200


def _moving(nth: int, now_s: float) -> float:
    """Move all of the load to the next gateway every 12 s, as a balancer does."""
    return 6_000 if int(now_s / 12) % 4 == nth else 100


def _joining(nth: int, now_s: float) -> float:
    return 6_000 if nth == 0 or now_s > 15 else 0


LOADS: list[tuple[int, Load, int]] = [
    (1, _skewed, 5),
    (2, _skewed, 5),
    # With few requests, the rate varies by chance.
    (2, _skewed, 80),
    (2, _even, 5),
    (4, _moving, 5),
    (3, _joining, 5),
    (10, _skewed, 5),
    (12, _even, 5),
]


@pytest.mark.parametrize(("count", "load", "batch"), LOADS)
def test_in_every_ten_seconds_the_fleet_lets_in_the_quota_within_a_tenth(
    count: int, load: Load, batch: int
) -> None:
    fleet = simulate(count, load, until_s=30, batch=batch)
    # After an idle time, a second's worth may come at once.
    found = [admitted(fleet, begin_s, begin_s + 10) for begin_s in range(2, 20)]
    assert min(found) > 0.92, found
    assert max(found) < 1.08, found


def test_who_asks_for_less_than_an_even_part_is_not_refused_while_another_asks_for_all() -> None:
    def load(nth: int, now_s: float) -> float:
        if nth == 0:
            return 20_000
        # The load begins late, at gateways that were idle.
        return 400 if now_s > 5 else 0

    fleet = simulate(4, load, until_s=25)
    for each in fleet[1:]:
        asked = len(each.admitted) + len(each.refused)
        assert asked > 1_000
        assert len(each.refused) < 0.01 * asked, "refused after the first moment"
        assert each.admitted[0] < 5.1, "a first request is admitted, whatever others want"


def test_below_the_quota_hardly_anybody_is_refused_wherever_the_load_goes() -> None:
    fleet = simulate(4, lambda nth, now_s: 1_000 if int(now_s / 5) % 4 == nth else 50, until_s=30)
    refused = sum(len(each.refused) for each in fleet)
    asked = refused + sum(len(each.admitted) for each in fleet)
    assert asked > 6_000
    assert refused < 0.01 * asked


def test_who_dies_is_forgotten_within_seconds_and_who_hears_nothing_keeps_its_share() -> None:
    members = Members(b"me")
    for nth in range(3):
        members.take(b"dead", news(acme=5_000), nth * 1_000)
    quotas = Quotas(members)
    quotas.admit(TENANT, now_s=0)
    quotas.admit(TENANT, now_s=1_000)
    assert left(quotas, now_s=1_001) < QUOTA, "shares change without news"
    members.take(b"me", news(), 2_000 + FORGET_MS + 1)
    assert left(quotas, now_s=1_003) == QUOTA


def left(quotas: Quotas, *, now_s: float) -> int:
    """Return the events that may come at once, according to the headers."""
    quotas.headers(TENANT, now_s=now_s)
    shown = dict(quotas.headers(TENANT, now_s=now_s + 1))
    assert shown[b"ratelimit-policy"] == b'"tenant-events";q=2000;w=1', "of the whole quota"
    return int(shown[b"ratelimit"].split(b";")[1].removeprefix(b"r="))
