"""Gives tenants turns for searches and changes, so that no tenant can occupy all of them."""

from gateway.problems import Problem
from shared.runtime.tenant_turns import TenantTurns

# Each search has its own connection to Kafka, and reads as fast as it can. A tenant has at most
# one turn, so none takes them all.
_AT_ONCE = 2
# The longest wait for a turn: longer than one search takes, so that a third caller can get one.
_TURN_S_MAX = 10.0


def search_turns(at_once: int = _AT_ONCE, *, wait_s: float = _TURN_S_MAX) -> TenantTurns:
    """Return turns for a few searches at a time, at most one for each tenant."""
    return TenantTurns(at_once, within_s=wait_s, refusal=_too_much)


def _too_much() -> Problem:
    soon = ((b"retry-after", b"1"),)
    return Problem("overloaded", "Too many such requests at once; ask again.", headers=soon)
