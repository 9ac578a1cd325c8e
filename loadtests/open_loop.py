"""Offers requests when they are due, regardless of earlier ones.

This is what a closed loop gets wrong: there a slow answer delays the next request, which is then
counted from when it was sent, and a server that stood still for two seconds looks well (ADR 0063).
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
    """Send at each due moment, at once when it has passed; give up when it is too late by far.

    `send` gets the moment by the clock of `now_s`; it may not wait, and returns whether it has
    room for one more. A request without room is `unsent`: counted, never postponed.
    """
    for due_s in dues_s:
        due = begun_s + due_s
        # 0 lets those that are on their way go on.
        sleep_s(max(0.0, due - now_s()))
        if now_s() - due > late_s_max:
            return
        if not send(due):
            unsent(due)
