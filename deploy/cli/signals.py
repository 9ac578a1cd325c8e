"""Lets a command handle signals itself while it works."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# The shells' exit status for a command that Ctrl-C ended: 128 plus the signal's number.
INTERRUPTED = 130


@contextmanager
def on_signals(
    take: Callable[[int, FrameType | None], object], *numbers: signal.Signals
) -> Iterator[None]:
    """Call `take` for these signals, until the end of the block."""
    before = {number: signal.signal(number, take) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
