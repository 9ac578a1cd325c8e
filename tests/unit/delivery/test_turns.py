"""Those that need not hurry go on one after the other, and nobody waits long for that."""

import time
from pathlib import Path

import pytest

from delivery.turns import book_turn


def test_turns_are_apart(tmp_path: Path) -> None:
    now_s = time.monotonic()
    turns = [book_turn(tmp_path / "new" / "turns", apart_s=10, longest_s=60) for _ in range(3)]
    assert turns[0] == pytest.approx(now_s, abs=5)
    assert turns[1:] == [turns[0] + 10, turns[0] + 20]


def test_who_would_wait_too_long_takes_any_moment_and_keeps_none_from_others(
    tmp_path: Path,
) -> None:
    file = tmp_path / "turns"
    begun_s = time.monotonic()
    turns = [book_turn(file, apart_s=60, longest_s=90) for _ in range(40)]
    assert turns[1] == turns[0] + 60
    assert all(begun_s <= turn <= time.monotonic() + 90 for turn in turns)
    assert len({round(turn) for turn in turns[2:]}) > 5
    # Two have booked, whoever came after them.
    assert book_turn(file, apart_s=60, longest_s=130) == turns[0] + 120


@pytest.mark.parametrize("content", [b"", b"half", b"\x00" * 7 + b"\x7f"])
def test_a_file_of_another_start_of_the_machine_or_half_a_one_binds_nobody(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "turns"
    file.write_bytes(content)
    begun_s = time.monotonic()
    first = book_turn(file, apart_s=1, longest_s=5)
    assert begun_s <= first <= time.monotonic()
    assert book_turn(file, apart_s=1, longest_s=5) == first + 1
