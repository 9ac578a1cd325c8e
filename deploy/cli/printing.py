"""Prints for commands: data to standard output, talk to standard error, nothing as markup.

What comes from events is never trusted: no markup, and no control character reaches a terminal.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# `markup=False`: an event that says "[red]" is text.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
talk = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

Cell = str | Text

# A line stays a line; --json shows everything.
_VALUE_CHARS_MAX = 2_000


def print_json(thing: Any) -> None:
    out.out(json.dumps(thing, indent=2, ensure_ascii=False), highlight=False)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, numbers: int = 0) -> None:
    """A table for people; aligned text when it goes to a file. The last `numbers` stand right."""
    first_number = len(heads) - numbers
    if out.is_terminal:
        table = Table(box=None, header_style="dim", padding=(0, 3, 0, 0), pad_edge=False)
        for place, head in enumerate(heads):
            table.add_column(head, justify="right" if place >= first_number else "left")
        for row in rows:
            table.add_row(*row)
        out.print(table, soft_wrap=False)
        return
    texts = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row_texts in texts:
        cells = (
            text.rjust(width) if place >= first_number else text.ljust(width)
            for place, (text, width) in enumerate(zip(row_texts, widths, strict=True))
        )
        out.out("  ".join(cells).rstrip(), highlight=False)


def harmless(text: str) -> str:
    """The text with everything that could move a terminal's cursor written out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def value_text(value: bytes) -> str:
    """An event's bytes on one line, as far as a line goes."""
    text = harmless(value.decode(errors="replace"))
    if len(text) > _VALUE_CHARS_MAX:
        text = f"{text[:_VALUE_CHARS_MAX]}… ({len(value):,} bytes)"
    return text


def when(at_ms: int) -> str:
    """Day and time, by the clock of this machine."""
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone()
    return at.strftime("%Y-%m-%d %H:%M:%S")


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """`hifi tail ... | head` is no error: when nobody reads any more, we are done."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
