"""Knows how much each gateway process wants of a tenant's quota, for all to divide it (ADR 0061).

Pure. shared/shares.py divides it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

import msgspec

# Chance makes less than two standard deviations; more is a rise.
_RISE = 2.0
# How often each process tells its wants.
TELL_S = 0.5
# A process without news for this long, by the log's own clock, is forgotten.
FORGET_MS = 3_000
# Less time than this is too short to measure a rate.
_RISE_S = 0.25
# Weight of the cost of one request in the estimate for the next.
_COST_WEIGHT = 0.1

# By name of the tenant and of the resource: amount a second.
Wants = Mapping[str, Mapping[str, float]]


class ShareNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """The news of one process for the others."""

    wants: dict[str, dict[str, float]] = {}
    # The process stops, and leaves its shares to the others.
    is_leaving: bool = False

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


@dataclass(slots=True)
class _Member:
    at_ms: int
    wants: Wants


@dataclass(slots=True)
class Members:
    """The other processes and their wants, from the topic of shares."""

    me: bytes
    _members: dict[bytes, _Member] = field(default_factory=dict)
    _newest_ms: int = 0

    def take(self, who: bytes, raw: bytes, at_ms: int) -> None:
        """Take in the next record; ValueError when it makes no sense.

        Only records tell that time passes: without news everything stays as it is.
        """
        news = msgspec.json.decode(raw, type=ShareNews)
        self._newest_ms = max(self._newest_ms, at_ms)
        if news.is_leaving:
            self._members.pop(who, None)
        elif who != self.me:
            self._members[who] = _Member(at_ms, news.wants)
        forgotten_ms = self._newest_ms - FORGET_MS
        silent = [who for who, each in self._members.items() if each.at_ms < forgotten_ms]
        for each in silent:
            del self._members[each]

    def wants(self, tenant: str, resource: str) -> list[float]:
        """Return the wants of each other process."""
        return [each.wants.get(tenant, {}).get(resource, 0.0) for each in self._members.values()]


@dataclass(slots=True)
class Demand:
    """How much of a tenant's quota is asked for here, also in vain.

    A refused request is assumed to cost as much as others did.
    """

    # Requests since `since_s`, and how many a second before.
    asked: int = 0
    before: float = 0.0
    since_s: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)

    def ask(self, now_s: float) -> bool:
        """Count one more request; return whether it is the first for a while."""
        is_first = not self.asked and not self.before
        if is_first:
            self.since_s = now_s
        self.asked += 1
        return is_first

    def use(self, resource: str, amount: float) -> None:
        """Learn the cost of a request."""
        known = self.costs.get(resource)
        self.costs[resource] = amount if known is None else known + _COST_WEIGHT * (amount - known)

    def wants(self, now_s: float) -> dict[str, float]:
        """Return the wanted amount a second of each resource."""
        asked, since_s = self.before, max(now_s - self.since_s, _RISE_S)
        usual = asked * since_s
        if self.asked > usual + _RISE * sqrt(usual):
            # Demand rises, and should not wait for the end of the period.
            asked = self.asked / since_s
        if not asked:
            return {}
        return {"requests": asked} | {
            resource: asked * cost for resource, cost in self.costs.items()
        }

    def roll(self, now_s: float) -> None:
        """Begin a new period: half a second, more or less, is over."""
        self.before = self.asked / max(now_s - self.since_s, _RISE_S)
        self.asked, self.since_s = 0, now_s
