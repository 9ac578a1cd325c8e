"""Charges a tenant's quota, and shows the rest in RateLimit headers.

Token buckets: one second's amount may arrive at once. A request's cost in events is known only
after it is read, so a bucket's level may fall below zero; then it admits nothing until the level is
above zero again. All gateway processes share the quota: each fills its buckets with its share
(ADR 0061).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from gateway.fleet.shares import TELL_S, Demand, Members, ShareNews
from gateway.problems import Problem
from shared.config.access import Tenant
from shared.shares import share

# Seconds of its rate that a bucket holds: the shortest window that RateLimit-Policy can name.
_WINDOW_S = 1
# A bucket can always hold this part of an even share, so that it admits a first request.
_IDLE_PART = 0.05
# Maximum age of a share. Computing a new one takes 10 to 50 µs for each process.
_SHARE_AGE_S = 0.25


@dataclass(slots=True)
class Bucket:
    """One rate. `level` is the amount that may be used at once."""

    # The tenant's rate.
    whole: float
    # How fast the bucket fills, and how much it holds.
    rate: float
    level_max: float
    level: float
    filled_at_s: float

    def fill(self, now_s: float) -> None:
        grown = self.level + (now_s - self.filled_at_s) * self.rate
        self.level = min(grown, self.level_max)
        self.filled_at_s = now_s

    def wait_s(self) -> float:
        """Return the seconds until the bucket admits a request again."""
        return max(0.0, -self.level / self.rate) + 1 / self.rate if self.level <= 0 else 0.0

    def divide(self, mine: float, others: Sequence[float]) -> None:
        """Set the rate to this process's share, by its demand and that of other processes.

        The process may use an even share at once, before others know of its demand. It did not
        have that share until now, so the bucket starts without savings from it.
        """
        even = self.whole / (len(others) + 1)
        ours = share(self.whole, mine=mine, others=others)
        self.rate = max(ours, even)
        self.level_max = max(ours, _IDLE_PART * even) * _WINDOW_S
        self.level = min(self.level, self.level_max)


@dataclass(slots=True)
class _TenantUse:
    """A tenant's buckets, and its demand at this process."""

    # The tenant's settings when the buckets were made.
    tenant: Tenant
    buckets: dict[str, Bucket]
    demand: Demand = field(default_factory=Demand)
    shared_at_s: float = float("-inf")


@dataclass(slots=True)
class Quotas:
    """The buckets of every tenant that has a quota."""

    members: Members = field(default_factory=lambda: Members(b""))
    # Called when other processes should learn our demand at once.
    tell: Callable[[], None] = lambda: None
    # Keys: names of tenants.
    _accounts: dict[str, _TenantUse] = field(default_factory=dict)
    _rolled_at_s: float = 0.0

    def admit(self, tenant: Tenant | None, *, now_s: float) -> None:
        """Admit a request, or refuse it with 429."""
        if tenant is None or (account := self._account(tenant, now_s)) is None:
            return
        if account.demand.ask(now_s):
            self.tell()
        for name, bucket in account.buckets.items():
            bucket.fill(now_s)
            if bucket.level <= 0:
                self.tell()
                wait_s = ceil(bucket.wait_s())
                raise Problem(
                    f"quota_{name}",
                    f"The tenant's quota of {bucket.whole:g} {name} per second"
                    f" is used up; send again in {wait_s} s.",
                    headers=((b"retry-after", b"%d" % wait_s),),
                    members={"violated-policies": [f"tenant-{name}"]},
                )
        if "requests" in account.buckets:
            account.buckets["requests"].level -= 1

    def use(self, tenant: Tenant | None, *, events: int, byte_count: int, now_s: float) -> None:
        """Charge the events and bytes that were read from a request, whatever its answer."""
        if tenant is None or (account := self._account(tenant, now_s)) is None:
            return
        for name, amount in (("events", events), ("bytes", byte_count)):
            if (bucket := account.buckets.get(name)) is not None:
                bucket.fill(now_s)
                bucket.level -= amount
                account.demand.use(name, amount)

    def headers(self, tenant: Tenant | None, *, now_s: float) -> tuple[tuple[bytes, bytes], ...]:
        """Return RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10)."""
        if tenant is None or (account := self._account(tenant, now_s)) is None:
            return ()
        policies, limits = [], []
        for name, bucket in account.buckets.items():
            bucket.fill(now_s)
            left = max(0, int(bucket.level))
            quota = max(1, int(bucket.whole * _WINDOW_S))
            policies.append(f'"tenant-{name}";q={quota};w={_WINDOW_S}')
            limits.append(f'"tenant-{name}";r={left};t={ceil(bucket.wait_s())}')
        return (
            (b"ratelimit-policy", ", ".join(policies).encode()),
            (b"ratelimit", ", ".join(limits).encode()),
        )

    def news(self, *, now_s: float) -> ShareNews:
        """Return this process's demand, for the other processes."""
        if now_s - self._rolled_at_s >= TELL_S:
            self._rolled_at_s = now_s
            for account in self._accounts.values():
                account.demand.roll(now_s)
        wants = {name: account.demand.wants(now_s) for name, account in self._accounts.items()}
        return ShareNews({name: wanted for name, wanted in wants.items() if wanted})

    def _account(self, tenant: Tenant, now_s: float) -> _TenantUse | None:
        """Return the tenant's account with its current share; None without a quota."""
        account = self._accounts.get(tenant.name)
        if account is None or account.tenant != tenant:
            rates = tenant.rates
            if not rates:
                return None
            buckets = {
                name: Bucket(rate, rate, rate * _WINDOW_S, rate * _WINDOW_S, now_s)
                for name, rate in rates.items()
            }
            account = self._accounts[tenant.name] = _TenantUse(tenant, buckets)
        if now_s - account.shared_at_s >= _SHARE_AGE_S:
            account.shared_at_s = now_s
            mine = account.demand.wants(now_s)
            for name, bucket in account.buckets.items():
                bucket.fill(now_s)
                bucket.divide(mine.get(name, 0.0), self.members.wants(tenant.name, name))
        return account
