"""Charges a tenant's quota, and says in RateLimit headers what is left of it.

Token buckets: a second's worth may come at once. What a request costs in events is known only
after it was read, so a bucket may go below zero and lets nothing in until it is above it again.
"""

from dataclasses import dataclass, field
from math import ceil

from gateway.problems import Problem
from shared.config.access import Tenant

# How many seconds' worth a bucket holds: the shortest window that RateLimit-Policy can name.
_WINDOW_S = 1


@dataclass(slots=True)
class Bucket:
    """One rate. `level` is what may be used at once."""

    rate: float
    level: float
    filled_at_s: float

    def fill(self, now_s: float) -> None:
        grown = self.level + (now_s - self.filled_at_s) * self.rate
        self.level = min(grown, self.rate * _WINDOW_S)
        self.filled_at_s = now_s

    def wait_s(self) -> float:
        """How long until something may be used again."""
        return max(0.0, -self.level / self.rate) + 1 / self.rate if self.level <= 0 else 0.0


@dataclass(slots=True)
class Quotas:
    """The buckets of every tenant that has a quota."""

    # The rates are per deployment of one machine: each worker gives its share.
    worker_count: int = 1
    # By the tenant's name; with the quota that they were made for.
    _tenants: dict[str, tuple[Tenant, dict[str, Bucket]]] = field(default_factory=dict)

    def admit(self, tenant: Tenant | None, *, now_s: float) -> None:
        """Take a request in, or refuse it with 429."""
        buckets = self._buckets(tenant, now_s)
        for name, bucket in buckets.items():
            bucket.fill(now_s)
            if bucket.level <= 0:
                wait_s = ceil(bucket.wait_s())
                raise Problem(
                    f"quota_{name}",
                    f"The tenant's quota of {bucket.rate * self.worker_count:g} {name} per second"
                    f" is used up; send again in {wait_s} s.",
                    headers=((b"retry-after", b"%d" % wait_s),),
                    members={"violated-policies": [f"tenant-{name}"]},
                )
        if "requests" in buckets:
            buckets["requests"].level -= 1

    def use(self, tenant: Tenant | None, *, events: int, byte_count: int, now_s: float) -> None:
        """Charge what was read of a request, whatever became of it."""
        buckets = self._buckets(tenant, now_s)
        for name, amount in (("events", events), ("bytes", byte_count)):
            if name in buckets:
                buckets[name].level -= amount

    def headers(self, tenant: Tenant | None, *, now_s: float) -> tuple[tuple[bytes, bytes], ...]:
        """RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10)."""
        buckets = self._buckets(tenant, now_s)
        if not buckets:
            return ()
        policies, limits = [], []
        for name, bucket in buckets.items():
            bucket.fill(now_s)
            left = max(0, int(bucket.level))
            quota = max(1, int(bucket.rate * _WINDOW_S))
            policies.append(f'"tenant-{name}";q={quota};w={_WINDOW_S}')
            limits.append(f'"tenant-{name}";r={left};t={ceil(bucket.wait_s())}')
        return (
            (b"ratelimit-policy", ", ".join(policies).encode()),
            (b"ratelimit", ", ".join(limits).encode()),
        )

    def _buckets(self, tenant: Tenant | None, now_s: float) -> dict[str, Bucket]:
        if tenant is None:
            return {}
        made_for, buckets = self._tenants.get(tenant.name, (None, {}))
        if made_for != tenant:
            rates = {
                "requests": tenant.requests_per_s,
                "events": tenant.events_per_s,
                "bytes": tenant.bytes_per_s,
            }
            buckets = {
                name: Bucket(rate / self.worker_count, rate / self.worker_count, now_s)
                for name, rate in rates.items()
                if rate is not None
            }
            self._tenants[tenant.name] = tenant, buckets
        return buckets
