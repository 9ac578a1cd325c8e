"""Bounds how often a tenant has single events sent again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.fleet.quota import Bucket
from gateway.problems import Problem

# One a second, and as many at once as somebody clicks: more is a re-drive or a replay.
_PER_S, _AT_ONCE = 1.0, 20.0
# Of tenants who have sent something again lately; a full allowance is no news.
_ALLOWANCES_MAX = 1_000


@dataclass(slots=True)
class ResendRate:
    """How often each tenant may have an event sent again by this gateway."""

    clock_s: Callable[[], float] = time.monotonic
    _allowances: dict[str, Bucket] = field(default_factory=dict)

    def charge(self, tenant: str) -> None:
        """Take one; Problem when there is none left."""
        now_s = self.clock_s()
        if len(self._allowances) >= _ALLOWANCES_MAX and tenant not in self._allowances:
            self._forget(now_s)
        bucket = self._allowances.setdefault(
            tenant, Bucket(_PER_S, _PER_S, _AT_ONCE, _AT_ONCE, now_s)
        )
        bucket.fill(now_s)
        if bucket.level < 1:
            raise Problem(
                "resend_rate",
                "A tenant may have one event sent again in a second; many go with"
                " dead-letters:redrive, or a replay.",
                headers=((b"retry-after", b"1"),),
            )
        bucket.level -= 1

    def _forget(self, now_s: float) -> None:
        for tenant, bucket in list(self._allowances.items()):
            bucket.fill(now_s)
            if bucket.level >= bucket.level_max:
                del self._allowances[tenant]
