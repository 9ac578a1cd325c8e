"""The verdict on every status and every failure, spelled out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.retry.attempt import (
    CONFIG_FAULTS,
    SPLITTABLE,
    Attempt,
    Failure,
    NoResponse,
    Outcome,
    Response,
    Verdict,
    WebhookDirective,
    classify,
    directive_of,
)

OK, AGAIN, NEVER, PARK = (
    Outcome.OK,
    Outcome.RECOVERABLE,
    Outcome.NON_RECOVERABLE,
    Outcome.PARK,
)

# status -> outcome, counts for the breaker, a setting is wrong, send the halves
STATUSES = {
    0: (AGAIN, True, False, False),
    100: (AGAIN, True, False, False),
    101: (AGAIN, True, False, False),
    199: (AGAIN, True, False, False),
    200: (OK, False, False, False),
    201: (OK, False, False, False),
    202: (OK, False, False, False),
    204: (OK, False, False, False),
    207: (OK, False, False, False),
    299: (OK, False, False, False),
    300: (AGAIN, True, True, False),
    301: (AGAIN, True, True, False),
    302: (AGAIN, True, True, False),
    304: (AGAIN, True, True, False),
    308: (AGAIN, True, True, False),
    399: (AGAIN, True, True, False),
    400: (NEVER, False, False, True),
    401: (NEVER, False, True, False),
    402: (NEVER, False, False, False),
    403: (NEVER, False, True, False),
    404: (NEVER, False, True, False),
    405: (NEVER, False, True, False),
    407: (NEVER, False, True, False),
    408: (NEVER, False, False, False),
    409: (NEVER, False, False, False),
    410: (NEVER, False, True, False),
    413: (NEVER, False, False, True),
    415: (NEVER, False, False, True),
    418: (NEVER, False, False, False),
    422: (NEVER, False, False, True),
    425: (NEVER, False, False, False),
    428: (NEVER, False, False, False),
    429: (AGAIN, False, False, False),
    430: (NEVER, False, False, False),
    499: (NEVER, False, False, False),
    500: (AGAIN, True, False, False),
    501: (AGAIN, True, False, False),
    503: (AGAIN, True, False, False),
    504: (AGAIN, True, False, False),
    599: (AGAIN, True, False, False),
    600: (AGAIN, True, False, False),
    999: (AGAIN, True, False, False),
}

# failure -> outcome, ambiguous, counts for the breaker, a setting is wrong, send the halves
FAILURES = {
    Failure.DNS_FAILED: (AGAIN, False, True, False, False),
    Failure.CONNECT_REFUSED: (AGAIN, False, True, False, False),
    Failure.CONNECT_TIMEOUT: (AGAIN, False, True, False, False),
    Failure.UNREACHABLE: (AGAIN, False, True, False, False),
    Failure.TLS_FAILED: (AGAIN, False, True, True, False),
    Failure.CLIENT_CERTIFICATE_REFUSED: (AGAIN, False, True, True, False),
    Failure.RESET_BEFORE_SENT: (AGAIN, False, True, False, False),
    Failure.RESET_AFTER_SENT: (AGAIN, True, True, False, False),
    Failure.SEND_TIMEOUT: (AGAIN, True, True, False, False),
    Failure.READ_TIMEOUT: (AGAIN, True, True, False, False),
    Failure.RESPONSE_UNREADABLE: (AGAIN, True, True, False, False),
    Failure.REQUEST_UNBUILDABLE: (NEVER, False, False, True, False),
    Failure.POLICY_BLOCKED: (NEVER, False, False, True, False),
    Failure.PAUSED: (PARK, False, False, False, False),
    Failure.BREAKER_OPEN: (PARK, False, False, False, False),
    Failure.HELD: (PARK, False, False, False, False),
    Failure.REJECTING: (PARK, False, False, False, False),
    Failure.KEY_WAITS: (PARK, False, False, False, False),
    Failure.DISABLED: (NEVER, False, False, True, False),
    Failure.OVER_RATE: (PARK, False, False, False, False),
    Failure.BUDGET_USED_UP: (PARK, False, False, False, False),
    Failure.SLOW_ANSWER: (PARK, True, False, False, False),
    Failure.RESOLVER_DOWN: (PARK, False, False, False, False),
    Failure.PROXY_FAILED: (PARK, False, False, False, False),
    Failure.SECRET_UNAVAILABLE: (PARK, False, False, False, False),
    Failure.TOKEN_UNAVAILABLE: (PARK, False, False, False, False),
    Failure.INTERNAL: (PARK, False, False, False, False),
}


@pytest.mark.parametrize("status", STATUSES)
def test_each_status_has_the_verdict_of_the_table(status: int) -> None:
    verdict = classify(Response(status))
    found = (
        verdict.outcome,
        verdict.is_breaker_failure,
        verdict.is_config_fault,
        verdict.is_splittable,
    )
    assert found == STATUSES[status]
    assert verdict.reason == f"status_{status}"
    # A proxy answered: the server behind it may have accepted the events.
    assert verdict.is_ambiguous is (status in {502, 504})


def test_every_status_there_can_be_follows_the_rule_of_three() -> None:
    for status in range(-1, 1100):
        if 200 <= status <= 299:
            expected = OK
        elif 400 <= status <= 499 and status != 429:
            expected = NEVER
        else:
            expected = AGAIN
        assert classify(Response(status)).outcome is expected, status


def test_a_redirect_is_never_a_delivery() -> None:
    assert all(classify(Response(status)).outcome is AGAIN for status in range(300, 400))


@pytest.mark.parametrize("failure", Failure)
def test_each_failure_has_the_verdict_of_the_table(failure: Failure) -> None:
    verdict = classify(NoResponse(failure, "some detail"))
    found = (
        verdict.outcome,
        verdict.is_ambiguous,
        verdict.is_breaker_failure,
        verdict.is_config_fault,
        verdict.is_splittable,
    )
    assert found == FAILURES[failure]
    assert verdict.reason == failure.value


def test_a_destination_may_add_statuses_to_the_recoverable_ones() -> None:
    retry_on = frozenset({408, 425})
    assert classify(Response(408), retry_on=retry_on).outcome is AGAIN
    assert classify(Response(425), retry_on=retry_on).outcome is AGAIN
    assert classify(Response(404), retry_on=retry_on).outcome is NEVER
    assert not classify(Response(408), retry_on=retry_on).is_breaker_failure


def test_nobody_can_make_a_success_recoverable() -> None:
    assert classify(Response(200), retry_on=frozenset({200})).outcome is OK


def test_a_status_that_is_to_be_retried_is_not_split_as_well() -> None:
    assert not classify(Response(413), retry_on=frozenset({413})).is_splittable


def test_no_status_is_both_the_events_fault_and_the_settings_fault() -> None:
    assert not SPLITTABLE & CONFIG_FAULTS


attempts: st.SearchStrategy[Attempt] = st.one_of(
    st.builds(Response, st.integers(), st.none() | st.text(), st.text()),
    st.builds(NoResponse, st.sampled_from(Failure), st.text()),
)


@given(attempts)
def test_flags_only_stand_where_they_can_mean_something(attempt: Attempt) -> None:
    verdict = classify(attempt)
    if verdict.is_splittable:
        assert verdict.outcome is NEVER
    if verdict.is_breaker_failure:
        assert verdict.outcome is AGAIN
    if verdict.is_ambiguous:
        # An event that was sent, but whose answer was not awaited, is retried elsewhere.
        assert verdict.outcome is AGAIN or verdict.reason == Failure.SLOW_ANSWER.value
    if verdict.outcome in {OK, PARK}:
        assert not verdict.is_config_fault


def test_of_a_first_copy_nobody_knows_unless_the_second_one_settles_it() -> None:
    assert classify(Response(503, is_resent=True)).is_ambiguous
    assert not classify(Response(200, is_resent=True)).is_ambiguous
    assert not classify(Response(400, is_resent=True)).is_ambiguous


@pytest.mark.parametrize("status", [100, 302, 400, 429, 503])
@pytest.mark.parametrize("directive", WebhookDirective)
def test_a_destination_may_ask_for_no_more_of_a_message(
    status: int, directive: WebhookDirective
) -> None:
    asked = classify(Response(status, "30", directive=directive, is_resent=True), retry_on={400})
    assert asked == Verdict(NEVER, f"asked_{directive.value}")
    # An event that the destination has accepted stays delivered.
    assert classify(Response(204, directive=directive)) == classify(Response(204))


def test_what_a_destination_asks_for_is_one_of_two_words() -> None:
    found = [directive_of(header) for header in ("", "later", "Disable ", "abort-message")]
    assert found == [None, None, WebhookDirective.DISABLE, WebhookDirective.ABORT]
