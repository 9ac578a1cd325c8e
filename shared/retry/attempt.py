"""Classifies one HTTP attempt: every status and every failure becomes one verdict.

The rule is literal: 2xx is delivered, any 4xx but 429 is non-recoverable, the rest is recoverable.
A destination may add statuses to the recoverable ones (`retry_on`, meant for 408 and 425).
A failure that was not the destination's fault is a park: no attempt is charged.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias, assert_never


class Failure(Enum):
    """How an exchange failed without a status, or why it was not started."""

    DNS_FAILED = "dns_failed"
    CONNECT_REFUSED = "connect_refused"
    CONNECT_TIMEOUT = "connect_timeout"
    UNREACHABLE = "unreachable"
    TLS_FAILED = "tls_failed"
    CLIENT_CERTIFICATE_REFUSED = "client_certificate_refused"
    RESET_BEFORE_SENT = "reset_before_sent"
    RESET_AFTER_SENT = "reset_after_sent"
    SEND_TIMEOUT = "send_timeout"
    READ_TIMEOUT = "read_timeout"
    RESPONSE_UNREADABLE = "response_unreadable"
    REQUEST_UNBUILDABLE = "request_unbuildable"
    POLICY_BLOCKED = "policy_blocked"
    PAUSED = "paused"
    BREAKER_OPEN = "breaker_open"
    HELD = "held"
    REJECTING = "rejecting"
    OVER_RATE = "over_rate"
    BUDGET_USED_UP = "budget_used_up"
    SLOW_ANSWER = "slow_answer"
    KEY_WAITS = "key_waits"
    DISABLED = "endpoint_disabled"
    RESOLVER_DOWN = "resolver_down"
    PROXY_FAILED = "proxy_failed"
    SECRET_UNAVAILABLE = "secret_unavailable"  # noqa: S105 - a cause, not a secret
    TOKEN_UNAVAILABLE = "token_unavailable"  # noqa: S105 - as above
    INTERNAL = "internal"


class WebhookDirective(Enum):
    """The wish of a destination in its reply's `webhook-delivery` header."""

    ABORT = "abort-message"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class Response:
    """The destination answered: its status decides."""

    status: int
    retry_after: str | None = None
    # The first bytes of the body, for the people who read dead letters.
    detail: str = ""
    # Whether this answers a second copy of the request; the first one may have arrived, too.
    is_resent: bool = False
    # The body of a 2xx that may name failed events (delivery/http/partial_reply.py).
    report: bytes = b""
    # Whether its media type marks it as a report; and as JSON.
    is_report: bool = False
    is_json: bool = False
    directive: WebhookDirective | None = None
    # The headers that are shown to people.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No status came back, or nothing was sent."""

    failure: Failure
    detail: str = ""


Attempt: TypeAlias = Response | NoResponse


class Outcome(Enum):
    OK = "ok"
    RECOVERABLE = "recoverable"
    NON_RECOVERABLE = "non_recoverable"
    PARK = "park"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of an attempt, with its reason and its other consequences."""

    outcome: Outcome
    reason: str
    # Whether the destination may have taken the events without our knowledge.
    is_ambiguous: bool = False
    # Whether it counts against the destination's circuit breaker.
    is_breaker_failure: bool = False
    # Whether somebody must change a setting: waiting alone does not help.
    is_config_fault: bool = False
    # Whether one bad event may be the cause: send the halves before giving up on the whole batch.
    is_splittable: bool = False
    # Whether the batch as a whole is too large, rather than an event in it.
    is_too_large: bool = False


# Statuses that a single event of a batch can cause (RFC 9110: content, size, type, semantics).
SPLITTABLE = frozenset({400, 413, 415, 422})
# Answers that say the address or the key is wrong, whatever the events are.
CONFIG_FAULTS = frozenset({401, 403, 404, 405, 407, 410})
# Answers of a proxy that had handed the request on: the destination behind it may have taken it.
AMBIGUOUS = frozenset({502, 504})
TOO_LARGE, TOO_MANY_REQUESTS = 413, 429


def directive_of(header: str) -> WebhookDirective | None:
    """The wish in a `webhook-delivery` header; unknown words are ignored."""
    word = header.strip().lower()
    return next((directive for directive in WebhookDirective if directive.value == word), None)


def classify(attempt: Attempt, *, retry_on: AbstractSet[int] = frozenset()) -> Verdict:
    """Return the verdict on an attempt; every value of Attempt has one."""
    match attempt:
        case Response(status=status, is_resent=is_resent, directive=directive):
            verdict = _classify_status(status, retry_on)
            if directive is not None and verdict.outcome is not Outcome.OK:
                # The destination wants none of these events again, whatever its status.
                return Verdict(Outcome.NON_RECOVERABLE, f"asked_{directive.value}")
            if is_resent and verdict.outcome is Outcome.RECOVERABLE:
                return replace(verdict, is_ambiguous=True)
            return verdict
        case NoResponse(failure=failure):
            return _classify_failure(failure)
        case _:
            assert_never(attempt)


def _classify_status(status: int, retry_on: AbstractSet[int]) -> Verdict:
    reason = f"status_{status}"
    if 200 <= status <= 299:  # noqa: PLR2004 - the success class of RFC 9110
        return Verdict(Outcome.OK, reason)
    if status == TOO_MANY_REQUESTS or status in retry_on:
        return Verdict(Outcome.RECOVERABLE, reason)
    if 400 <= status <= 499:  # noqa: PLR2004 - the client error class of RFC 9110
        return Verdict(
            Outcome.NON_RECOVERABLE,
            reason,
            is_config_fault=status in CONFIG_FAULTS,
            is_splittable=status in SPLITTABLE,
            is_too_large=status == TOO_LARGE,
        )
    # 1xx as a final answer, 3xx (never followed), 5xx, and numbers that no RFC knows.
    return Verdict(
        Outcome.RECOVERABLE,
        reason,
        is_ambiguous=status in AMBIGUOUS,
        is_breaker_failure=True,
        is_config_fault=300 <= status <= 399,  # noqa: PLR2004 - the redirect class of RFC 9110
    )


def _classify_failure(failure: Failure) -> Verdict:
    reason = failure.value
    match failure:
        case (
            Failure.DNS_FAILED
            | Failure.CONNECT_REFUSED
            | Failure.CONNECT_TIMEOUT
            | Failure.UNREACHABLE
            | Failure.RESET_BEFORE_SENT
        ):
            return Verdict(Outcome.RECOVERABLE, reason, is_breaker_failure=True)
        case Failure.TLS_FAILED | Failure.CLIENT_CERTIFICATE_REFUSED:
            return Verdict(
                Outcome.RECOVERABLE, reason, is_breaker_failure=True, is_config_fault=True
            )
        case (
            Failure.RESET_AFTER_SENT
            | Failure.SEND_TIMEOUT
            | Failure.READ_TIMEOUT
            | Failure.RESPONSE_UNREADABLE
        ):
            return Verdict(Outcome.RECOVERABLE, reason, is_ambiguous=True, is_breaker_failure=True)
        case Failure.REQUEST_UNBUILDABLE | Failure.POLICY_BLOCKED | Failure.DISABLED:
            return Verdict(Outcome.NON_RECOVERABLE, reason, is_config_fault=True)
        case Failure.SLOW_ANSWER:
            # We gave up waiting before it had answered.
            return Verdict(Outcome.PARK, reason, is_ambiguous=True)
        case (
            Failure.PAUSED
            | Failure.BREAKER_OPEN
            | Failure.HELD
            | Failure.REJECTING
            | Failure.OVER_RATE
            | Failure.BUDGET_USED_UP
            | Failure.KEY_WAITS
            | Failure.RESOLVER_DOWN
            | Failure.PROXY_FAILED
            | Failure.SECRET_UNAVAILABLE
            | Failure.TOKEN_UNAVAILABLE
            | Failure.INTERNAL
        ):
            return Verdict(Outcome.PARK, reason)
        case _:
            assert_never(failure)
