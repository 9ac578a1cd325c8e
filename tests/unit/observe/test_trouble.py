"""A destination in trouble gets the verdict and the cause that its own answers show."""

from dataclasses import replace

import pytest
from msgspec import structs

from observe.lag.trouble import HOPELESS_MS, trouble_of
from shared.flow.flow import Blocking, Flow, blocked
from shared.flow.flow_record import FlowRecord
from shared.proof.last_answer import LastAnswer
from shared.proof.overview import DestinationView, RecentOutcomes, StreamVerdict
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from tests.support.console.console_fixtures import destination_view
from tests.support.suite.samples import NOW_MS
from tests.unit.flow.test_flow import HOLDING, TO, told

UNHEALTHY = Response(503, detail="no healthy upstream")
NO_KEY = Response(401, detail="who are you?")
BAD = Response(400)
MUCH = Response(429, "7")
TIMEOUT = NoResponse(Failure.READ_TIMEOUT)
NOTHING = RecentOutcomes()
V = StreamVerdict


def record(flow: Flow) -> FlowRecord:
    return FlowRecord(Flow()).with_flow(flow, now_ms=NOW_MS)


def a_view(
    lately: RecentOutcomes, answer: LastAnswer | None, *, backlog: int = 0
) -> DestinationView:
    view = destination_view("orders", "shop", at_ms=NOW_MS)
    return replace(view, lately=lately, last_refusal=answer, backlog_events=backlog)


# Recent answers, outcomes in 5 min and in 30 s -> verdict, cause, reason.
TABLE: list[
    tuple[list[Attempt], RecentOutcomes, RecentOutcomes | None, StreamVerdict | None, str, str]
] = [
    ([], NOTHING, None, None, "", ""),
    ([Response(200)], RecentOutcomes(delivered=9), None, None, "", ""),
    # Down: before its breaker opens, while it is open, and long after the last event.
    (
        [UNHEALTHY] * 3,
        RecentOutcomes(failed=1),
        None,
        V.FAILING,
        "status_503",
        "0 of 7 delivered in 5 min",
    ),
    (
        [TIMEOUT] * 10,
        RecentOutcomes(delivered=900, failed=9),
        None,
        V.FAILING,
        "read_timeout",
        "900 of",
    ),
    ([UNHEALTHY] * 3, NOTHING, None, V.FAILING, "status_503", "no healthy upstream"),
    # The destination refuses everything, and its breaker stays closed; also long after the last
    # event.
    (
        [NO_KEY] * 9,
        RecentOutcomes(refused=2_000),
        None,
        V.REJECTING,
        "status_401",
        "2,000 of 2,000 refused",
    ),
    (
        [Response(200), *[NO_KEY] * 10],
        RecentOutcomes(delivered=900, refused=9),
        None,
        V.REJECTING,
        "status_401",
        "9 of 909",
    ),
    ([NO_KEY], NOTHING, None, V.REJECTING, "status_401", "401 since 22:13: who are you?"),
    (
        [BAD] * 20,
        RecentOutcomes(refused=20),
        None,
        V.REJECTING,
        "status_400",
        "20 of 20 refused in 5 min",
    ),
    # A few bad events among good ones, or a single one long ago, say nothing about the destination.
    (
        [Response(200), BAD, Response(200)],
        RecentOutcomes(delivered=996, refused=4),
        None,
        None,
        "",
        "",
    ),
    ([BAD], NOTHING, None, None, "", ""),
    # The destination accepts fewer events than arrive.
    (
        [MUCH] * 10,
        RecentOutcomes(rate_limited=50),
        None,
        V.RATE_LIMITED,
        "status_429",
        "0 of 7 delivered",
    ),
    ([MUCH], NOTHING, None, V.RATE_LIMITED, "status_429", "429 since 22:13"),
    (
        [MUCH, Response(200)],
        RecentOutcomes(delivered=80, rate_limited=20),
        None,
        V.RATE_LIMITED,
        "status_429",
        "80 of 87",
    ),
    ([MUCH, Response(200)], RecentOutcomes(delivered=95, rate_limited=5), None, None, "", ""),
    # A wrong setting is not a failure of the destination, but stops it, too.
    (
        [NoResponse(Failure.TOKEN_UNAVAILABLE, "401 from idp")],
        RecentOutcomes(failed=9),
        RecentOutcomes(failed=9),
        V.FAILING,
        "token_unavailable",
        "token unavailable at 22:13: 401 from idp",
    ),
    # Somebody has fixed the destination: its recent outcomes and its last answer count.
    (
        [*[UNHEALTHY] * 3, Response(200)],
        RecentOutcomes(delivered=9, failed=99),
        RecentOutcomes(delivered=9),
        None,
        "",
        "",
    ),
    (
        [*[UNHEALTHY] * 3, Response(200)],
        RecentOutcomes(delivered=1, failed=99),
        NOTHING,
        None,
        "",
        "",
    ),
]


@pytest.mark.parametrize(("answers", "lately", "latest", "verdict", "cause", "why"), TABLE)
def test_the_word_is_that_of_the_last_answers(  # noqa: PLR0917 - a table
    answers: list[Attempt],
    lately: RecentOutcomes,
    latest: RecentOutcomes | None,
    verdict: StreamVerdict | None,
    cause: str,
    why: str,
) -> None:
    flow = told(Flow(), *answers)
    view = a_view(lately, flow.last_refusal, backlog=7)
    found = trouble_of(view, TO, record(flow), lately if latest is None else latest, now_ms=NOW_MS)
    assert (found and found.verdict) is verdict
    if found is not None:
        assert found.cause == cause
        assert why in found.reason


def test_the_whole_sentence_is_what_an_operator_wants_to_read() -> None:
    flow = told(Flow(), *[UNHEALTHY] * 10)
    view = a_view(RecentOutcomes(failed=180_002), flow.last_refusal, backlog=180_002)
    found = trouble_of(view, TO, record(flow), view.lately, now_ms=NOW_MS)
    assert found is not None
    assert found.reason == ("0 of 180,002 delivered in 5 min; 503 since 22:13: no healthy upstream")


def test_a_sentence_holds_the_first_words_of_a_long_answer() -> None:
    flow = told(Flow(), Response(503, detail="<html>" * 400))
    found = trouble_of(
        a_view(RecentOutcomes(failed=1), flow.last_refusal),
        TO,
        record(flow),
        RecentOutcomes(failed=1),
        now_ms=NOW_MS,
    )
    assert found is not None
    assert len(found.reason) < 200


def test_without_a_word_of_the_workers_receipts_alone_tell() -> None:
    view = a_view(RecentOutcomes(refused=5), None)
    found = trouble_of(view, TO, None, NOTHING, now_ms=NOW_MS)
    assert found is not None
    assert (found.verdict, found.cause, found.reason) == (
        V.REJECTING,
        "",
        "5 of 5 refused in 5 min",
    )


def test_what_holds_up_all_behind_it_is_named() -> None:
    flow = told(Flow(), UNHEALTHY)
    blocking = Blocking(offset=17, since_ms=NOW_MS, until_ms=NOW_MS + 60_000, attempts=2)
    view = a_view(NOTHING, flow.last_refusal, backlog=9)
    heard = record(blocked(flow, blocking))
    in_line = replace(TO, order="stream")
    found = trouble_of(view, in_line, heard, NOTHING, now_ms=NOW_MS)
    assert found is not None
    assert (found.verdict, found.cause) == (V.HELD, "blocking")
    assert found.reason == (
        "the event at offset 17 has blocked all later ones since 22:13: tried 2 times, again at"
        " 22:14; 9 events wait in order; 503 since 22:13: no healthy upstream"
    )
    once = structs.replace(heard, flow=blocked(flow, structs.replace(blocking, attempts=1)))
    said = trouble_of(view, in_line, once, NOTHING, now_ms=NOW_MS)
    assert said is not None
    assert "tried once, again" in said.reason
    # Order is no longer required: the event that blocked it says nothing.
    other = trouble_of(view, TO, heard, NOTHING, now_ms=NOW_MS)
    assert other is not None
    assert other.verdict is V.FAILING


def test_what_a_person_or_a_storm_has_stopped_says_so() -> None:
    def found(flow: Flow, **settings: object) -> tuple[StreamVerdict, str, str]:
        view = a_view(NOTHING, flow.last_refusal, backlog=1)
        finding = trouble_of(view, replace(TO, **settings), record(flow), NOTHING, now_ms=NOW_MS)  # type: ignore[arg-type]
        assert finding is not None
        return finding.verdict, finding.cause, finding.reason

    assert found(Flow(), is_paused=True) == (
        V.PAUSED, "paused", "a person has paused it; 1 event waits",
    )  # fmt: skip
    assert found(Flow(), is_disabled=True)[:2] == (V.DISABLED, "disabled")
    gone = found(told(Flow(), Response(410, detail="moved")))
    assert gone[:2] == (V.DISABLED, "status_410")
    assert gone[2] == (
        "given up since 22:13, its events become dead letters; 410 since 22:13: moved"
    )
    held = found(told(Flow(), *[NO_KEY] * 50, limits=HOLDING))
    assert held[:2] == (V.HELD, "status_401")
    assert held[2].startswith("held since 22:13; 1 event waits; 401 since")


def test_a_persons_word_that_no_worker_has_heard_counts_before_what_they_say() -> None:
    down = told(Flow(), *[UNHEALTHY] * 10)
    view = a_view(RecentOutcomes(failed=99), down.last_refusal)
    to = replace(TO, resumed_at_ms=NOW_MS + 1)
    assert trouble_of(view, to, record(down), view.lately, now_ms=NOW_MS) is None


def test_a_destination_that_was_well_is_hopeless_once_it_takes_nothing_for_three_seconds() -> None:
    # The destination took 900 events just now; one request has failed since, perhaps the first of
    # many.
    flow = told(Flow(), Response(200), NO_KEY)
    lately = RecentOutcomes(delivered=900, refused=1)
    view = a_view(lately, flow.last_refusal)

    def word(after_ms: int) -> StreamVerdict | None:
        found = trouble_of(view, TO, record(flow), lately, now_ms=NOW_MS + after_ms)
        return found.verdict if found else None

    assert word(HOPELESS_MS - 1) is None
    assert word(HOPELESS_MS) is V.REJECTING
    well = told(flow, Response(200))
    assert trouble_of(view, TO, record(well), lately, now_ms=NOW_MS + HOPELESS_MS) is None
