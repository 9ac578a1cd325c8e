"""Kept answers are bounded whatever a destination answers, and show no secret."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.proof.last_answer import (
    ANSWER_BYTES_MAX,
    FailedTry,
    answer_of,
    is_answer,
    share_room,
    shown_text,
    told_headers,
)

tries = st.builds(
    FailedTry,
    at_ms=st.just(1_700_000_000_000),
    reason=st.just("status_503"),
    took_ms=st.integers(0, 99_999),
    status=st.just(503),
    text=st.text(max_size=2_000).map(shown_text),
    headers=st.dictionaries(
        st.sampled_from(["server", "via"]), st.text(max_size=2_000).map(shown_text)
    ),
)


def size_of(failed: FailedTry) -> int:
    return len(msgspec.json.encode(failed))


@given(st.lists(tries, max_size=4), st.integers(1, 50))
def test_all_receipts_of_a_batch_have_room_for_one_answer(
    failed: list[FailedTry], receipt_count: int
) -> None:
    shared = share_room(failed, receipt_count=receipt_count)
    assert len(shared) == len(failed)
    # Even without room, everything about a failed try except its answer is written.
    written = receipt_count * sum(map(size_of, shared))
    assert written <= max(ANSWER_BYTES_MAX, 110 * receipt_count * len(failed))


def test_a_short_answer_is_kept_whole_and_a_long_one_by_its_beginning() -> None:
    short = FailedTry(1, "status_503", 7, 503, "closed", {"server": "edge"})
    assert share_room([short]) == (short,)
    long = FailedTry(1, "status_503", 7, 503, "\u00e9" * 1_000, {"via": "x" * 300})
    (cut,) = share_room([long])
    assert cut.text == "\u00e9" * ((1024 - 110 - 3) // 2) + "\u2026"
    assert cut.headers == {}
    # Half a character is cut off.
    assert FailedTry(1, "x", text="\u00e9" * 3).within(4).text == "\u2026"
    assert FailedTry(1, "x", text="a\u00e9\u00e9").within(4).text == "a\u2026"


def test_of_headers_only_those_are_told_that_help_and_no_query_is() -> None:
    told = told_headers(
        {
            "set-cookie": "session=1",
            "location": "https://shop.example/sign-in?token=secret",
            "retry-after": "30",
            "server": "ed\x1b[2Jge",
        }
    )
    assert told == {
        "retry-after": "30",
        "location": "https://shop.example/sign-in",
        "server": "ed [2Jge",
    }
    assert told_headers({"via": "1.1 edge", "x": "y"}) == {"via": "1.1 edge"}


def test_a_batch_without_a_receipt_has_nothing_to_share() -> None:
    """In an ordered stream, the first event of a refused batch stays where it is."""
    failed = FailedTry(at_ms=1_700_000_000_000, reason="status_503", text="no")
    assert share_room([failed], receipt_count=0) == ()
    assert share_room([], receipt_count=1) == ()


def test_answers_that_differ_in_numbers_and_ids_are_one() -> None:
    said = {answer_of("status_400", "status_400", f'{{"error": "no user {each}", "n":{nth}}}')
            for nth, each in enumerate(["17", "f00-0aa", "u_99"])}  # fmt: skip
    assert said == {'{"error": "no user #", "n":#}'}
    assert answer_of("retries_exhausted", "status_503", "busy") == "503 busy"
    assert answer_of("retries_exhausted", "connect_refused", "") == "connect refused"
    assert answer_of("status_400", "status_400", "") == ""


@given(st.text(max_size=2_000))
def test_an_answer_is_as_short_as_a_line_and_one_that_was_cut_its_beginning(text: str) -> None:
    (kept,) = share_room([FailedTry(1, "status_400", 7, 400, shown_text(text))])
    (short,) = share_room([kept], receipt_count=5)
    whole, cut = (
        answer_of("status_400", "status_400", of) for of in (shown_text(text), short.text)
    )
    assert len(whole) <= 121
    assert not any(map(str.isdigit, whole))
    assert is_answer(whole, whole)
    last = cut.removesuffix("*")[-1:]
    # A word that was cut may have continued with a digit.
    assert is_answer(whole, cut) or (cut.endswith("*") and last and not last.isspace())
    assert is_answer(cut, whole) is is_answer(whole, cut)


def test_only_what_was_cut_stands_for_more() -> None:
    assert not is_answer("not found", "not found here")
    assert is_answer("not fo*", "not found here")
    assert is_answer("not found here", "not*")
    assert not is_answer("gone*", "not found here")
