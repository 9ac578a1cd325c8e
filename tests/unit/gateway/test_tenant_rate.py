"""How often single events may be resent: each tenant by itself, and within bounds."""

from contextlib import suppress

import pytest

from gateway.fleet import tenant_rate
from gateway.fleet.tenant_rate import TenantRate, resend_rate
from gateway.problems import Problem


def charged(rate: TenantRate, tenant: str, times: int) -> int:
    """Charge the tenant this many times; return how often it was admitted."""
    done = 0
    with suppress(Problem):
        for _ in range(times):
            rate.charge(tenant)
            done += 1
    return done


def test_a_tenant_has_a_few_at_once_and_one_a_second_then() -> None:
    now_s = 100.0
    rate = resend_rate(lambda: now_s)
    assert charged(rate, "acme", 30) == 20
    with pytest.raises(Problem) as refused:
        rate.charge("acme")
    assert (refused.value.code, refused.value.status) == ("resend_rate", 429)
    now_s += 2.0
    assert charged(rate, "acme", 30) == 2
    # A tenant that has used up its own share does not reduce another's.
    assert charged(rate, "bravo", 30) == 20


def test_tenants_who_have_all_of_it_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_rate, "_ALLOWANCES_MAX", 3)
    now_s = 0.0
    rate = resend_rate(lambda: now_s)
    assert charged(rate, "busy", 30) == 20
    for name in ("a", "b"):
        assert charged(rate, name, 1) == 1
    now_s += 1.0
    assert charged(rate, "c", 1) == 1
    assert len(rate._allowances) == 2
    assert charged(rate, "busy", 30) == 1
