"""Bounds how often a tenant may trigger requests and messages to others."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from gateway.fleet.quota import Bucket
from gateway.problems import Problem

# Beyond this many tenants, full allowances are dropped: a new allowance is full, too.
_ALLOWANCES_MAX = 1_000


@dataclass(slots=True)
class TenantRate:
    """Limits how often each tenant may use one feature of this gateway."""

    # Code and text of a refusal.
    code: str
    detail: str
    per_s: float
    # The full allowance, which a tenant has after a pause.
    at_once: float
    clock_s: Callable[[], float] = time.monotonic
    _allowances: dict[str, Bucket] = field(default_factory=dict)

    def charge(self, tenant: str) -> None:
        """Take one from the allowance; raise Problem if none is left."""
        now_s = self.clock_s()
        if len(self._allowances) >= _ALLOWANCES_MAX and tenant not in self._allowances:
            self._forget(now_s)
        bucket = self._allowances.setdefault(
            tenant, Bucket(self.per_s, self.per_s, self.at_once, self.at_once, now_s)
        )
        bucket.fill(now_s)
        if bucket.level < 1:
            wait_s = ceil((1 - bucket.level) / self.per_s)
            raise Problem(self.code, self.detail, headers=((b"retry-after", b"%d" % wait_s),))
        bucket.level -= 1

    def _forget(self, now_s: float) -> None:
        for tenant, bucket in list(self._allowances.items()):
            bucket.fill(now_s)
            if bucket.level >= bucket.level_max:
                del self._allowances[tenant]


def resend_rate(clock_s: Callable[[], float] = time.monotonic) -> TenantRate:
    """Allow one a second, and 20 at once for people who click; a redrive or replay can do more."""
    detail = (
        "A tenant may resend one event per second; for many events use"
        " dead-letters:redrive or a replay."
    )
    return TenantRate("resend_rate", detail, per_s=1.0, at_once=20.0, clock_s=clock_s)


def channel_test_rate() -> TenantRate:
    """Allow a few tests for a set-up, but no more: messages may reach the wrong people."""
    detail = "A tenant may test its channels ten times an hour."
    return TenantRate("channel_test_rate", detail, per_s=10 / 3_600, at_once=10.0)
