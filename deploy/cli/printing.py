"""Prints for commands: data to standard output, messages to standard error, nothing as markup.

Text from events is never trusted: neither markup nor a control character reaches a terminal.
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
# The form of a command's output: for people, for programs, or only names for the next command.
Form = Literal["table", "json", "yaml", "name"]

# Longer values are cut, so that a row fits a line; --json shows everything.
_VALUE_CHARS_MAX = 2_000


class LazyConsole:
    """A console that is loaded only when it has something to print."""

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
        """Print the text unchanged; long lines are not wrapped."""
        self.console.out(text, highlight=False)


out, talk = LazyConsole(), LazyConsole(stderr=True)


def print_json(thing: Any) -> None:
    out.out(json.dumps(thing, indent=2, ensure_ascii=False))


def yaml_text(thing: Any) -> str:
    """Return it as YAML, from which `hifi apply` reads the same values."""
    import yaml  # noqa: PLC0415 - loaded only for YAML output

    plain = json.loads(json.dumps(thing))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100))


def print_data(form: Form | None, thing: Any) -> None:
    """Print it for programs: as YAML if requested, else as JSON."""
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
    """Print one object, as JSON unless another form was requested; a table lists settings."""
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
    """Print a table, or aligned text into a file; the last `numbers` columns are right-aligned."""
    first_number = len(heads) - numbers
    if out.is_terminal:
        from rich.table import Table  # noqa: PLC0415 - slow to load, like the console

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
    """Return the text with escapes in place of characters that could move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def value_text(value: bytes) -> str:
    """Return an event's bytes as one line, shortened if it is long."""
    return _shortened(harmless(value.decode(errors="replace")), f"{len(value):,} bytes")


def _shortened(text: str, size: str) -> str:
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}… ({size})"


def when(at_ms: int) -> str:
    """Return date and time, in this machine's time zone."""
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone()
    return at.strftime("%Y-%m-%d %H:%M:%S")


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """End quietly when the reader of our output is gone, as in `hifi events tail ... | head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes again when it ends, and would report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
