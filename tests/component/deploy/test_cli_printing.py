"""How values are printed: on one line for people, and without harm to a terminal."""

import io
import os
import sys

import pytest

from deploy.cli.printing import harmless, reader_may_leave, value_text


@pytest.mark.parametrize("value", [b"\x1b[31mred", b"a\nb", b"\x07", b"\xff\xfe", b"\xc2\x9b1m"])
def test_no_control_character_reaches_the_terminal(value: bytes) -> None:
    assert value_text(value).isprintable()
    assert harmless(value.decode(errors="replace")).isprintable()


def test_a_long_value_is_cut_for_people() -> None:
    assert value_text(b'"' + b"x" * 5_000 + b'"').endswith("x… (5,002 bytes)")


def test_text_without_control_characters_stays_as_it_is() -> None:
    assert harmless("größe 漢字 [red]") == "größe 漢字 [red]"


def test_a_reader_that_leaves_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with io.TextIOWrapper(os.fdopen(writing, "wb")) as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with reader_may_leave():
            sys.stdout.write("nobody reads this")
