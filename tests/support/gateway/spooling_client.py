"""Sends without a pause through a spool, and writes down each id once it is accepted.

`python -m tests.support.gateway.spooling_client URL STREAM SPOOL YES_FILE`, to be killed at any
moment. It prints "full" once its spool accepts nothing more.
"""

import os
import sys
from collections import deque
from pathlib import Path

from hifi_client import FullError, Sender, Sent

SPOOL_BYTES_MAX = 300_000
_AHEAD_MAX = 500


def main() -> None:
    url, stream, spool, yes_file = sys.argv[1:]
    yes = os.open(yes_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    options = {"spool": Path(spool), "spool_bytes_max": SPOOL_BYTES_MAX}
    hifi = Sender(url, stream, memory_bytes_max=100_000, linger_s=0.01, timeout_s=2, **options)
    waiting: deque[Sent] = deque()
    _say("begun")
    while True:
        try:
            waiting.append(hifi.send_within(0.5, {"text": "x" * 100}))
        except FullError:
            _say("full")
        while waiting and (len(waiting) > _AHEAD_MAX or _is_safe(waiting[0])):
            os.write(yes, f"{waiting.popleft().wait_safe().id}\n".encode())


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _is_safe(sent: Sent) -> bool:
    try:
        return sent.wait_safe(0).is_yes
    except TimeoutError:
        return False


if __name__ == "__main__":
    main()
