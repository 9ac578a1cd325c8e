"""Reads the events of `hifi send`; each keeps its bytes and its place in the input."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from shared.runtime.clock import now_ms
from shared.runtime.setup_error import UsageError

_STANDARD_INPUT = Path("-")


@dataclass(frozen=True, slots=True)
class EventInput:
    """One event's bytes, and its place in the input, for messages."""

    place: str
    raw: bytes


def read_arguments(texts: Iterable[str]) -> Iterator[EventInput]:
    for number, text in enumerate(texts, start=1):
        yield _checked(f"argument {number}", text.encode(errors="surrogateescape"))


def read_lines(path: Path) -> Iterator[EventInput]:
    """Yield the event of each line; skip empty lines."""
    if path == _STANDARD_INPUT:
        yield from _lines(sys.stdin.buffer, "standard input")
        return
    try:
        with path.open("rb") as file:
            yield from _lines(file, str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): name another file.") from error


def synthetic(count: int) -> Iterator[EventInput]:
    """Yield generated events, with ids that are unique to this run."""
    run = f"{time.time_ns():x}"
    for number in range(1, count + 1):
        event = {"id": f"{run}-{number}", "number": number, "time_ms": now_ms()}
        yield EventInput(f"event {number}", json.dumps(event).encode())


def _lines(file: BinaryIO, name: str) -> Iterator[EventInput]:
    for number, line in enumerate(file, start=1):
        raw = line.strip()
        if raw:
            yield _checked(f"line {number} of {name}", raw)


def _checked(place: str, raw: bytes) -> EventInput:
    """Raise UsageError if the event is not JSON, which would make its whole request unreadable."""
    try:
        json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON ({error}): fix it, and send from there.") from error
    return EventInput(place, raw)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not in the JSON standard")
