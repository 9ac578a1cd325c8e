"""Offers requests when they are due, regardless of earlier ones.

A closed loop gets this wrong: a slow answer delays the next request, whose time is then counted
from when it was sent, so a server that stalled for two seconds looks healthy (ADR 0063).
"""

from collections.abc import Callable, Iterable


def offer(
    dues_s: Iterable[float],
    *,
    begun_s: float,
    now_s: Callable[[], float],
    sleep_s: Callable[[float], None],
    send: Callable[[float], bool],
    unsent: Callable[[float], None],
    late_s_max: float,
) -> None:
    """Send each request when it is due, or at once if late; give up after `late_s_max`.

    `send` gets the due time on the clock of `now_s`; it must not wait, and returns whether it has
    room for the request. A request without room is `unsent`: counted, never postponed.
    """
    for due_s in dues_s:
        due = begun_s + due_s
        # A sleep of 0 lets open requests proceed.
        sleep_s(max(0.0, due - now_s()))
        if now_s() - due > late_s_max:
            return
        if not send(due):
            unsent(due)
