"""Knows how much of a tenant's quota each gateway process needs (ADR 0061).

Pure. shared/shares.py divides the quota accordingly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

import msgspec

# Random variation is less than two standard deviations; more means that demand has risen.
_RISE = 2.0
# How often each process publishes its demand.
TELL_S = 0.5
# A process without records for this long, by the log's own clock, is forgotten.
FORGET_MS = 3_000
# Times shorter than this are too short to measure a rate.
_RISE_S = 0.25
# Weight of the cost of one request in the estimate for the next.
_COST_WEIGHT = 0.1

# Tenant -> resource -> amount per second.
Wants = Mapping[str, Mapping[str, float]]


class ShareNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process's record for the others."""

    wants: dict[str, dict[str, float]] = {}
    # The process is stopping, and leaves its shares to the others.
    is_leaving: bool = False

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


@dataclass(slots=True)
class _Member:
    at_ms: int
    wants: Wants


@dataclass(slots=True)
class Members:
    """The other processes and their demand, from the topic of shares."""

    me: bytes
    _members: dict[bytes, _Member] = field(default_factory=dict)
    _newest_ms: int = 0

    def take(self, who: bytes, raw: bytes, at_ms: int) -> None:
        """Process the next record; raise ValueError if it is malformed.

        Time passes only with records: without new ones, everything stays as it is.
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
        """Return each other process's demand."""
        return [each.wants.get(tenant, {}).get(resource, 0.0) for each in self._members.values()]


@dataclass(slots=True)
class Demand:
    """A tenant's demand at this process, including refused requests.

    A refused request is assumed to cost as much as others.
    """

    # Requests since `since_s`, and requests per second before that.
    asked: int = 0
    before: float = 0.0
    since_s: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)

    def ask(self, now_s: float) -> bool:
        """Count a request; return whether it is the first of this and the previous period."""
        is_first = not self.asked and not self.before
        if is_first:
            self.since_s = now_s
        self.asked += 1
        return is_first

    def use(self, resource: str, amount: float) -> None:
        """Note the cost of a request."""
        known = self.costs.get(resource)
        self.costs[resource] = amount if known is None else known + _COST_WEIGHT * (amount - known)

    def wants(self, now_s: float) -> dict[str, float]:
        """Return the demand for each resource per second."""
        asked, since_s = self.before, max(now_s - self.since_s, _RISE_S)
        usual = asked * since_s
        if self.asked > usual + _RISE * sqrt(usual):
            # Demand has risen: use the new rate before the period ends.
            asked = self.asked / since_s
        if not asked:
            return {}
        return {"requests": asked} | {
            resource: asked * cost for resource, cost in self.costs.items()
        }

    def roll(self, now_s: float) -> None:
        """Begin a new period, about every half second."""
        self.before = self.asked / max(now_s - self.since_s, _RISE_S)
        self.asked, self.since_s = 0, now_s
