"""Prints for commands: data to standard output, talk to standard error, nothing as markup.

Text from events is never trusted: no markup, and no control character reaches a terminal.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Cell: TypeAlias = "str | Text"
# The form of a command's output: for people, for programs, or only names for a next command.
Form = Literal["table", "json", "yaml", "name"]

# A line stays a line; --json shows everything.
_VALUE_CHARS_MAX = 2_000


class LazyConsole:
    """A console that is loaded when it has something to print, not before."""

    def __init__(self, *, stderr: bool = False) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> "Console":
        from rich.console import Console  # noqa: PLC0415 - a fifth of the time to start

        # `markup=False`: an event that says "[red]" is text.
        return Console(
            stderr=self._stderr, highlight=False, soft_wrap=True, markup=False, emoji=False
        )

    @property
    def is_terminal(self) -> bool:
        stream = sys.stderr if self._stderr else sys.stdout
        return stream.isatty() and self.console.is_terminal

    @property
    def width(self) -> int:
        return self.console.width

    def print(self, *things: Any, **how: Any) -> None:
        self.console.print(*things, **how)

    def out(self, text: str) -> None:
        """As it is, however long a line gets."""
        self.console.out(text, highlight=False)


out, talk = LazyConsole(), LazyConsole(stderr=True)


def print_json(thing: Any) -> None:
    out.out(json.dumps(thing, indent=2, ensure_ascii=False))


def yaml_text(thing: Any) -> str:
    """As YAML that `hifi apply` reads as it was written."""
    import yaml  # noqa: PLC0415 - only who asks for it waits until it is loaded

    plain = json.loads(json.dumps(thing))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100))


def print_data(form: Form | None, thing: Any) -> None:
    """For programs: YAML if that was asked for, else JSON."""
    if form == "yaml":
        out.out(yaml_text(thing).rstrip("\n"))
    else:
        print_json(thing)


def print_list(
    form: Form | None,
    items: Sequence[Any],
    heads: Sequence[str],
    cells: Callable[[Any], Sequence[Cell]],
    name: Callable[[Any], str] = lambda item: item["name"],
    *,
    numbers: int = 0,
) -> None:
    """Print all objects of a kind, as a table unless another form was requested."""
    if form in {None, "table"}:
        print_table(heads, [cells(item) for item in items], numbers=numbers)
    elif form == "name":
        for item in items:
            out.print(harmless(name(item)))
    else:
        print_data(form, items)


def print_one(form: Form | None, thing: Mapping[str, Any], *, name: str) -> None:
    """One thing; as JSON, unless another form was asked for. A table has a line of each setting."""
    if form == "name":
        out.print(harmless(name))
    elif form == "table":
        rows = [(setting, _cell(value)) for setting, value in thing.items()]
        print_table(("setting", "value"), rows)
    else:
        print_data(form, thing)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _shortened(harmless(text), f"{len(text):,} characters")


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, numbers: int = 0) -> None:
    """A table for people; aligned text when it goes to a file. The last `numbers` stand right."""
    first_number = len(heads) - numbers
    if out.is_terminal:
        from rich.table import Table  # noqa: PLC0415 - as the console

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
        out.out("  ".join(cells).rstrip())


def harmless(text: str) -> str:
    """The text with everything that could move a terminal's cursor written out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def value_text(value: bytes) -> str:
    """An event's bytes on one line, as far as a line goes."""
    return _shortened(harmless(value.decode(errors="replace")), f"{len(value):,} bytes")


def _shortened(text: str, size: str) -> str:
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}… ({size})"


def when(at_ms: int) -> str:
    """Day and time, by the clock of this machine."""
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone()
    return at.strftime("%Y-%m-%d %H:%M:%S")


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """`hifi events tail ... | head` is no error: when nobody reads any more, we are done."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
