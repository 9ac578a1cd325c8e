"""Reads and writes the file by which the console learns of services that keep dying."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from shared.runtime.files.whole_file import write_whole

# A service that has lived this long after a death counts as healthy again.
MEMORY_MS = 600_000


class ServiceDeath(msgspec.Struct, frozen=True):
    """A dead service, how often it died recently, and when it will be restarted."""

    name: str
    # How it ended, as in "was ended by SIGKILL".
    how: str
    # Its last output, and the place of the rest.
    last_words: str
    count: int
    again_at_ms: int

    def is_news(self, *, now_ms: int) -> bool:
        return now_ms - self.again_at_ms < MEMORY_MS

    def sentence(self, *, now_ms: int) -> str:
        left_s = (self.again_at_ms - now_ms + 999) // 1000
        when = f"is started again in {left_s} s" if left_s > 0 else "has been started again"
        often = f"{self.count} times in ten minutes"
        return f"{self.name} {self.how}, {often}, and {when}: {self.last_words}"


_DECODER = msgspec.json.Decoder(list[ServiceDeath])


def write_deaths(path: Path, deaths: Iterable[ServiceDeath]) -> None:
    write_whole(path, msgspec.json.encode(list(deaths)))


def read_deaths(path: Path | None) -> Sequence[ServiceDeath]:
    """Read the deaths in a file; none if there is no file."""
    try:
        return _DECODER.decode(path.read_bytes()) if path else ()
    except (OSError, msgspec.MsgspecError):
        return ()
