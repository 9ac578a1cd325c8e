"""Holds back all threads of a sender while the gateway is down or has asked for a pause."""

import random
import threading
import time

FIRST_S, LONGEST_S = 0.1, 5.0
# A problem that a person has to fix needs no retry every few seconds.
SETUP_S = 10.0


class Pace:
    """Decides when the next request may be sent, and keeps the current problem."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._not_before_s = 0.0
        # A pause that the gateway asked for lasts even if another request succeeds.
        self._asked_until_s = 0.0
        self._failures = 0
        self._is_ended = False
        # The current problem in a sentence; empty if there is none.
        self.problem = ""

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    def wait(self, *, until_s: float | None = None) -> bool:
        """Wait until a request may be sent; return False at the sender's end, or at `until_s`."""
        with self._changed:
            while not self._is_ended:
                now_s = time.monotonic()
                if until_s is not None and now_s >= until_s:
                    return False
                left_s = self._not_before_s - now_s
                if left_s <= 0:
                    return True
                self._changed.wait(left_s if until_s is None else min(left_s, until_s - now_s))
            return False

    def went_well(self) -> None:
        if self.problem:
            with self._changed:
                self._failures = 0
                self._not_before_s = self._asked_until_s
                self.problem = ""
                self._changed.notify_all()

    def failed(self, problem: str, *, wait_s: float | None, is_setup: bool = False) -> bool:
        """Pause longer each time, or as the gateway asks; return whether the problem is new."""
        with self._changed:
            longest_s = SETUP_S if is_setup else LONGEST_S
            pause_s = min(FIRST_S * 2 ** min(self._failures, 10), longest_s)
            # Random, so that many senders do not retry at the same moment.
            pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            if wait_s is not None:
                pause_s = max(wait_s, pause_s if self._failures else 0.0)
                self._asked_until_s = max(self._asked_until_s, time.monotonic() + wait_s)
            self._failures += 1
            self._not_before_s = max(self._not_before_s, time.monotonic() + pause_s)
            is_news = problem != self.problem
            self.problem = problem
            return is_news

    def note(self, problem: str) -> bool:
        """Note a problem that needs no pause; return whether it is new."""
        is_news = problem != self.problem
        self.problem = problem
        return is_news

    def end(self) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
