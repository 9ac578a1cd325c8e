"""Gives each tenant a turn among searches and changes, so that nobody holds all places."""

from gateway.problems import Problem
from shared.runtime.tenant_turns import TenantTurns

# Each search takes a connection of its own to Kafka, and reads as fast as it can. A tenant has one
# turn, so that nobody holds them all.
_AT_ONCE = 2
# Longer than one search takes, so that a third caller has a chance.
_TURN_S_MAX = 10.0


def search_turns(at_once: int = _AT_ONCE, *, wait_s: float = _TURN_S_MAX) -> TenantTurns:
    """Return turns for few searches at a time, of which a tenant holds at most one."""
    return TenantTurns(at_once, within_s=wait_s, refusal=_too_much)


def _too_much() -> Problem:
    soon = ((b"retry-after", b"1"),)
    return Problem("overloaded", "There is too much of this at once; ask again.", headers=soon)
