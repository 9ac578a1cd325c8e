"""The fast root over many ids equals the plain one, whatever the ids look like."""

import random

from hypothesis import given
from hypothesis import strategies as st

from observe.audit.ids.arrow_ids import root_of_lines
from shared.proof.merkle import BLOCK_IDS, merkle_root

# Ids that begin or end alike, ids with characters to escape, and ids that are longer than a key.
ids = st.one_of(
    st.text(st.sampled_from("ab\0\\é一😀"), min_size=1, max_size=12),
    st.integers(0, 200).map(lambda number: f"order-2026-{number}"),
    st.uuids().map(str),
)


def laid_out(lines: list[str], at: int) -> list[bytes]:
    parts = (lines[:at], lines[at:])
    return ["\n".join(part).encode() for part in parts if part]


@given(st.lists(ids, max_size=3 * BLOCK_IDS), st.integers(0, 100), st.lists(ids, max_size=3))
def test_a_root_over_lines_is_that_over_their_ids(
    lines: list[str], at: int, more: list[str]
) -> None:
    expected = merkle_root([*lines, *more]), len({*lines, *more})
    assert root_of_lines(laid_out(lines, at), more) == expected


def test_an_id_with_a_line_break_is_one_id() -> None:
    assert root_of_lines([b"a\nb"], ["c\nd"]) == (merkle_root(["a", "b", "c\nd"]), 3)


def test_many_more_ids_than_are_laid_out_at_a_time() -> None:
    many = [f"event-{number}" for number in range(150_000)]
    random.Random(7).shuffle(many)
    assert root_of_lines(laid_out(many, 900)) == (merkle_root(many), len(many))
