"""Divides a destination's requests and rate among the stores that send to it, one per machine.

Each store publishes its needs and its present share, and all compute the same shares from those
(ADR 0068). Nobody leads, and clocks may differ by a second: a store publishes that it has released
something before another store takes that.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from shared.shares import share

# How often a store publishes its news while others also send, and how soon it publishes a change.
TELL_MS, TELL_SOON_MS = 1_000, 100
# A store that has published nothing for this long, while others have, is forgotten.
FORGET_MS = 4_000
# How far another's clock may be ahead of ours; and the age from which news is ignored.
AHEAD_MS, STALE_MS = 5_000, 30_000
# A store that had to wait within this time wants more requests, or all of the rate.
WANT_MS = 1_000
ALL = 1_000_000_000
# With fewer concurrent requests than stores, stores take turns.
TURN_MS = 2_000


class StoreNews(Struct, frozen=True, omit_defaults=True):
    """The news that a store has published about itself."""

    # By its own clock.
    at_ms: int = 0
    # How many concurrent requests it can use, and how many it may have, or has.
    wants: int = 0
    has: int = 0
    # How many events a second it can use.
    rate: float = 0.0


class Neighbours(Struct, frozen=True, omit_defaults=True):
    """A store among those that send to a destination."""

    me: str = ""
    mine: StoreNews = StoreNews()
    others: dict[str, StoreNews] = {}
    # How many concurrent requests it may have.
    has: int = 0
    # The times until which it counts as wanting more requests, or more events a second.
    full_until_ms: int = 0
    slow_until_ms: int = 0
    # The highest recent number of concurrent requests, and when it was counted.
    most: int = 0
    most_at_ms: int = 0
    # Events since that time, and the events per second before it.
    sent: int = 0
    sent_since_ms: int = 0
    rate: float = 0.0

    @property
    def active(self) -> Mapping[str, StoreNews]:
        """The others that send at present; time is measured by the newest news."""
        if not self.others:
            return self.others
        now_ms = self._newest_ms
        return {
            name: each
            for name, each in self.others.items()
            if each.at_ms > now_ms - FORGET_MS and each.wants
        }

    @property
    def _newest_ms(self) -> int:
        return max([self.mine.at_ms, *(each.at_ms for each in self.others.values())])

    @property
    def is_to_try_more(self) -> bool:
        """Whether it is our turn, among stores without enough, to try to send more."""
        short = sorted(
            [self.me, *(store for store, each in self.active.items() if each.wants > each.has)]
        )
        return short[self._newest_ms // TURN_MS % len(short)] == self.me

    def target(self, permits: int) -> int:
        """How many of these concurrent requests it gets, as every store computes it."""
        wants = {name: each.wants for name, each in self.active.items()}
        wants[self.me] = max(1, self.mine.wants)
        turn = self._newest_ms // TURN_MS if permits < len(wants) else 0
        return spread(permits, wants, turn=turn)[self.me]


def spread(permits: int, wants: Mapping[str, int], *, turn: int) -> Mapping[str, int]:
    """Deal out the permits one by one: first the wanted ones, then the rest."""
    names = sorted(wants)
    first = turn % len(names)
    names = names[first:] + names[:first]
    given = dict.fromkeys(names, 0)
    while permits > 0:
        takers = [name for name in names if given[name] < wants[name]] or names
        for name in takers[:permits]:
            given[name] += 1
        permits -= len(takers)
    return given


def heard(known: Neighbours, told: Mapping[str, StoreNews], *, me: str, now_ms: int) -> Neighbours:
    """The neighbours after news of stores, which may come in any order and repeatedly."""
    all_told = {**known.others}
    for name, each in told.items():
        before = all_told.get(name)
        if name != me and (before is None or each.at_ms > before.at_ms):
            all_told[name] = each
    others = {
        name: each
        for name, each in all_told.items()
        if now_ms - STALE_MS < each.at_ms < now_ms + AHEAD_MS
    }
    return known if others == known.others else replace(known, me=me, others=others)


def shared_out(known: Neighbours, permits: int, *, running: int, now_ms: int) -> Neighbours:
    """The neighbours, with the number of concurrent requests that this store gets of all permits.

    It releases permits at once, and takes only those that others have published as released.
    """
    target = known.target(permits)
    # The share of a store that was silent for long, or that stopped sending, is unknown.
    is_known = known.mine.wants > 0 and now_ms - known.mine.at_ms < FORGET_MS
    had = known.has if is_known else min(running, permits)
    free = permits - sum(each.has for each in known.active.values())
    has = target if had >= target else max(had, min(target, free))
    return known if has == known.has else replace(known, has=has)


def rate_here(known: Neighbours, rate: float | None) -> float | None:
    """A store's share of a rate: all that others do not want, and at least an equal share.

    So a store that begins to want more need not wait until others know that.
    """
    active = known.active
    if rate is None or not active:
        return rate
    wants = [each.rate for each in active.values()]
    return max(share(rate, mine=rate, others=wants), rate / (len(wants) + 1))


def noted_running(known: Neighbours, running: int, *, now_ms: int) -> Neighbours:
    """Note that this many requests are under way."""
    if running <= known.most and now_ms - known.most_at_ms < WANT_MS:
        return known
    return replace(known, most=running, most_at_ms=now_ms)


def noted_waiting(
    known: Neighbours, what: Literal["permits", "rate"], *, until_ms: int, now_ms: int
) -> Neighbours:
    """Record until when a task waits for others' requests to end, or for the next event."""
    if not known.active:
        return known
    wants_until_ms = min(until_ms, now_ms + STALE_MS) + WANT_MS
    if what == "permits":
        return replace(known, full_until_ms=wants_until_ms)
    return replace(known, slow_until_ms=wants_until_ms)


def noted_sent(known: Neighbours, event_count: int, *, now_ms: int) -> Neighbours:
    """Note that this many events were sent."""
    span_ms = now_ms - known.sent_since_ms
    if span_ms < WANT_MS:
        return replace(known, sent=known.sent + event_count)
    rate = 1000 * known.sent / span_ms
    return replace(known, sent=event_count, sent_since_ms=now_ms, rate=rate)


def news_of(known: Neighbours, *, running: int, is_here: bool, now_ms: int) -> StoreNews:
    """The store's news about itself; `is_here` if it sends at all."""
    if not is_here:
        return StoreNews(now_ms)
    if not known.active:
        # Nothing was counted, and nobody had to wait for others.
        return StoreNews(now_ms, max(1, running), running, ALL)
    most = known.most if now_ms - known.most_at_ms < 2 * WANT_MS else 0
    most = max(1, running, most)
    # A store with too few asks for twice as many, and again for more if that was not enough.
    wants = 2 * max(most, known.has) if now_ms < known.full_until_ms else most
    rate = max(known.rate, 1000 * known.sent / max(WANT_MS, now_ms - known.sent_since_ms))
    rate = ALL if now_ms < known.slow_until_ms else rate
    return StoreNews(now_ms, wants, max(known.has, running), rate)


def is_to_tell(known: Neighbours, news: StoreNews) -> bool:
    """Whether to publish the news now, for others that also send."""
    since_ms, last = news.at_ms - known.mine.at_ms, known.mine
    if not news.wants and not last.wants:
        return False
    if since_ms >= TELL_MS:
        return True
    wants_more = news.wants > max(last.wants, news.has) or (news.rate == ALL) > (last.rate == ALL)
    is_waited_for = any(each.wants > each.has for each in known.active.values())
    gives_up = is_waited_for and (news.has < last.has or news.wants == 0)
    return since_ms >= TELL_SOON_MS and (wants_more or gives_up)
