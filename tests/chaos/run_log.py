"""Logs what a chaos run did and when, so that a failing seed can be understood and repeated."""

import threading
import time
from pathlib import Path


class RunLog:
    """Lines with the seconds since the beginning, on the screen and in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._begun_s

    def say(self, what: str) -> None:
        line = f"{self.took_s:6.1f}  {what}"
        with self._lock, self._path.open("a") as file:
            file.write(line + "\n")
            print(line, flush=True)  # noqa: T201 - people watch its progress
