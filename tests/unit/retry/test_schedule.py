"""The retry walk, Retry-After as servers send it, and jitter that never shortens a wait."""

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.retry.retry_after import (
    RETRY_AFTER_S_MAX,
    RETRY_AFTER_S_MIN,
    Wait,
    as_length,
    parse_retry_after,
)
from shared.retry.schedule import JITTER_FRACTION, RetrySchedule, Tier, jittered
from tests.support.suite.samples import NOW_MS

rolls = st.floats(0, 1, exclude_max=True)

# The walk in real values: attempt -> tier, its delay, time since the first.
WALK = [
    (1, "30s", 30.0, "0:00:30"),
    (2, "5m", 300.0, "0:05:30"),
    (3, "30m", 1_800.0, "0:35:30"),
    (4, "2h", 7_200.0, "2:35:30"),
    (5, "8h", 28_800.0, "10:35:30"),
    (6, "8h", 28_800.0, "18:35:30"),
    (7, "8h", 28_800.0, "26:35:30"),
    (8, "8h", 28_800.0, "34:35:30"),
    (9, "8h", 28_800.0, "42:35:30"),
    (10, "8h", 28_800.0, "50:35:30"),
    (11, "8h", 28_800.0, "58:35:30"),
    (12, "8h", 28_800.0, "66:35:30"),
]


def test_the_walk_through_the_tiers_is_the_table() -> None:
    schedule = RetrySchedule()
    since_first_s = 0.0
    walked = []
    attempt_count = 1
    while tier := schedule.tier_after(attempt_count):
        since_first_s += tier.delay_s
        hours, rest = divmod(round(since_first_s), 3600)
        clock = f"{hours}:{rest // 60:02}:{rest % 60:02}"
        walked.append((attempt_count, tier.name, tier.delay_s, clock))
        attempt_count += 1
    assert walked == WALK


def test_the_walk_ends_before_the_deadline() -> None:
    schedule = RetrySchedule()
    walk_s = sum(t.delay_s * r for t, r in zip(schedule.tiers, schedule.tier_rounds, strict=True))
    assert walk_s == 239_730.0
    assert walk_s < schedule.deadline_s == 3 * 86_400


def test_a_tier_with_no_rounds_is_passed_over_but_serves_for_hops() -> None:
    schedule = RetrySchedule(tiers=(Tier("1s", 1), Tier("2s", 2)), tier_rounds=(0, 1))
    assert schedule.tier_after(1) == Tier("2s", 2)
    assert schedule.tier_after(2) is None
    assert schedule.tier_for_wait(1.5) == Tier("1s", 1)


def test_no_rounds_at_all_means_no_retry_in_a_tier() -> None:
    assert RetrySchedule(tier_rounds=(0, 0, 0, 0, 0)).tier_after(1) is None


# attempts made in this micro-batch -> the next wait, with the smallest and largest roll
LOCAL = [(1, 0.2, 0.24), (2, 1.0, 1.2), (3, None, None), (4, None, None)]


@pytest.mark.parametrize(("local_attempt_count", "least_s", "most_s"), LOCAL)
def test_local_delays_are_the_table(
    local_attempt_count: int, least_s: float | None, most_s: float | None
) -> None:
    schedule = RetrySchedule()
    assert schedule.local_delay_s(local_attempt_count, roll=0.0) == least_s
    almost_one = math.nextafter(1.0, 0.0)
    assert schedule.local_delay_s(local_attempt_count, roll=almost_one) == pytest.approx(most_s)


def test_without_local_delays_there_is_no_local_try() -> None:
    assert RetrySchedule(local_delays_s=()).local_delay_s(1, roll=0.5) is None


# wait asked for -> the tier to wait in: the longest that is not longer, else the shortest
WAITS = [
    (0.0, "30s"),
    (29.9, "30s"),
    (30.0, "30s"),
    (299.999, "30s"),
    (300.0, "5m"),
    (1_799.0, "5m"),
    (1_800.0, "30m"),
    (7_200.0, "2h"),
    (28_799.0, "2h"),
    (28_800.0, "8h"),
    (86_400.0, "8h"),
]


@pytest.mark.parametrize(("wait_s", "tier"), WAITS)
def test_the_tier_for_a_wait_is_the_longest_that_fits(wait_s: float, tier: str) -> None:
    assert RetrySchedule().tier_for_wait(wait_s).name == tier


def test_scaled_time_keeps_names_and_proportions() -> None:
    scaled = RetrySchedule().scaled(0.001)
    assert [tier.name for tier in scaled.tiers] == ["30s", "5m", "30m", "2h", "8h"]
    assert [tier.delay_s for tier in scaled.tiers] == pytest.approx([0.03, 0.3, 1.8, 7.2, 28.8])
    assert scaled.local_delays_s == pytest.approx((0.0002, 0.001))
    assert scaled.deadline_s == pytest.approx(259.2)
    assert scaled.tier_rounds == RetrySchedule().tier_rounds


@pytest.mark.parametrize(
    ("tiers", "rounds"),
    [
        ((), ()),
        ((Tier("0s", 0.0),), (1,)),
        ((Tier("-1s", -1.0),), (1,)),
        ((Tier("5m", 300.0), Tier("30s", 30.0)), (1, 1)),
        ((Tier("30s", 30.0),), (1, 1)),
        ((Tier("30s", 30.0),), (-1,)),
    ],
)
def test_a_schedule_that_cannot_be_walked_is_refused(
    tiers: tuple[Tier, ...], rounds: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="tier"):
        RetrySchedule(tiers=tiers, tier_rounds=rounds)


@given(st.floats(0, 1e6), rolls)
def test_jitter_only_adds_and_at_most_a_fifth(delay_s: float, roll: float) -> None:
    assert delay_s <= jittered(delay_s, roll=roll) <= delay_s * (1 + JITTER_FRACTION)


# Retry-After -> seconds to wait, or None if it is unusable. NOW_MS is 2023-11-14 22:13:20 UTC.
RETRY_AFTER = {
    # seconds
    "0": 0.0,
    "1": 1.0,
    "120": 120.0,
    " 120 ": 120.0,
    "+5": 5.0,
    "007": 7.0,
    "1.5": 1.5,
    "0.001": 0.001,
    # "do not come back"
    "-1": -1.0,
    "-0.5": -0.5,
    "-86400": -86_400.0,
    # minus zero is zero
    "-0": 0.0,
    # huge, and larger than any float: the longest wait that Hifi ever takes
    "99999999999999999999": 1e20,
    "9" * 400: math.inf,
    # HTTP dates in the three formats of RFC 9110, two minutes ahead
    "Tue, 14 Nov 2023 22:15:20 GMT": 120.0,
    "Tuesday, 14-Nov-23 22:15:20 GMT": 120.0,
    "Tue Nov 14 22:15:20 2023": 120.0,
    # other time zones, which some servers send
    "Tue, 14 Nov 2023 23:15:20 +0100": 120.0,
    "Tue, 14 Nov 2023 22:15:20 -0000": 120.0,
    # a time in the past: no wait
    "Tue, 14 Nov 2023 22:13:19 GMT": 0.0,
    "Sun, 06 Nov 1994 08:49:37 GMT": 0.0,
    # the last second of the calendar
    "Fri, 31 Dec 9999 23:59:59 GMT": 251_702_300_799.0,
    # garbage
    "": None,
    "   ": None,
    "soon": None,
    "5 minutes": None,
    "120s": None,
    "1e3": None,
    "1_000": None,
    "0x10": None,
    "1,5": None,
    "120, 120": None,
    "--5": None,
    "5.": None,
    "inf": None,
    "nan": None,
    "\u0661\u0662": None,  # Arabic digits, which int() and \d would accept
    "\u00b2": None,
    "Tue, 32 Nov 2023 22:15:20 GMT": None,
    "Tue, 14 Nov 2023 22:15:60 GMT": None,
    "Sat, 01 Jan 10000 00:00:00 GMT": None,
    "Tue, 14 Nov 2023 22:15:20 +9999": None,
}


@pytest.mark.parametrize("text", RETRY_AFTER, ids=lambda text: repr(text[:40]))
def test_retry_after_is_read_as_the_table_says(text: str) -> None:
    expected = RETRY_AFTER[text]
    wait = parse_retry_after(text, now_ms=NOW_MS)
    assert wait == (None if expected is None else Wait(expected))


def test_no_header_asks_for_nothing() -> None:
    assert parse_retry_after(None, now_ms=NOW_MS) is None


@pytest.mark.parametrize(
    ("text", "date", "length"),
    [
        ("Tue, 14 Nov 2023 22:25:20 GMT", "Tue, 14 Nov 2023 22:15:20 GMT", "600"),
        ("Tue, 14 Nov 2023 22:15:20 GMT", "Tue, 14 Nov 2023 22:25:20 GMT", "0"),
        ("Tue, 14 Nov 2023 22:25:20 GMT", None, "Tue, 14 Nov 2023 22:25:20 GMT"),
        ("Tue, 14 Nov 2023 22:25:20 GMT", "today", "Tue, 14 Nov 2023 22:25:20 GMT"),
        ("120", "Tue, 14 Nov 2023 22:15:20 GMT", "120"),
        ("-1", "Tue, 14 Nov 2023 22:15:20 GMT", "-1"),
        ("soon", "Tue, 14 Nov 2023 22:15:20 GMT", "soon"),
        (None, "Tue, 14 Nov 2023 22:15:20 GMT", None),
    ],
)
def test_a_date_is_measured_by_the_clock_that_wrote_it(
    text: str | None, date: str | None, length: str | None
) -> None:
    assert as_length(text, date) == length


@given(st.text(max_size=60) | st.text("0123456789+-.:, GMTNovSun", max_size=40))
def test_no_header_can_break_the_parser(text: str) -> None:
    wait = parse_retry_after(text, now_ms=NOW_MS)
    assert wait is None or RETRY_AFTER_S_MIN <= wait.clamped_s <= RETRY_AFTER_S_MAX


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)))  # noqa: DTZ001 - zone added below
def test_a_date_is_never_a_refusal(naive: datetime) -> None:
    at = naive.replace(tzinfo=UTC, microsecond=0)
    wait = parse_retry_after(format_datetime(at, usegmt=True), now_ms=NOW_MS)
    assert wait is not None
    assert not wait.is_refusal
    assert wait == Wait(max(0.0, at.timestamp() - NOW_MS / 1000))


@given(st.floats(allow_nan=False))
def test_a_wait_is_clamped_to_a_second_and_a_day(delay_s: float) -> None:
    assert RETRY_AFTER_S_MIN <= Wait(delay_s).clamped_s <= RETRY_AFTER_S_MAX
    assert Wait(delay_s).is_refusal == (delay_s < 0)


@given(st.floats(0, 1e9))
def test_within_the_limits_a_wait_is_not_shortened(delay_s: float) -> None:
    assert Wait(delay_s).clamped_s >= min(delay_s, RETRY_AFTER_S_MAX)


def test_what_waits_is_due_after_its_tier_and_not_before_its_destination_asked() -> None:
    schedule = RetrySchedule().scaled(0.1)
    assert schedule.due_at_ms("30s", 1_000, not_before_ms=0) == 4_000
    assert schedule.due_at_ms("30s", 1_000, not_before_ms=9_000) == 9_000
    assert schedule.due_at_ms("slow", 1_000, not_before_ms=0) == 1_000
