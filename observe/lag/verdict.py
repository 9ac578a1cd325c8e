"""Sums a destination up in one word for people, and a sentence that says why."""

from datetime import UTC, datetime

from shared.proof.overview import DestinationView, StreamVerdict, Unsettled

# A lane that has work and gives no sign for so long hangs; a busy one gives several a second.
STALLED_AFTER_S = 4.0


def stream_verdict(
    view: DestinationView, *, problem: str = "", is_paused: bool = False, slow_after_s: float
) -> tuple[StreamVerdict, str]:
    """The worst that holds, and why. `problem`: what could not be read, if anything."""
    lost = sum(minute.lost_count for minute in view.minutes)
    if lost:
        nodes = sorted({node.value for minute in view.minutes for node in minute.lost})
        return (
            StreamVerdict.LOSING,
            f"{lost:,} events were lost in the last hour, at {' and '.join(nodes)}",
        )
    if view.silent_s >= STALLED_AFTER_S and not is_paused:
        pending = view.balance.pending
        return (
            StreamVerdict.STALLED,
            f"{pending:,} events are there and none has moved for {view.silent_s:.0f} s",
        )
    if problem or view.unsettled.minute_count:
        return StreamVerdict.CANNOT_TELL, problem or _in_words(view.unsettled)
    return _pace(view, is_paused=is_paused, slow_after_s=slow_after_s)


def _in_words(unsettled: Unsettled) -> str:
    """How many minutes cannot be told, since when, and why not."""
    if unsettled.oldest_ms is None:
        oldest = "events with a wild time"
    else:
        oldest = datetime.fromtimestamp(unsettled.oldest_ms / 1000, UTC).strftime("%F %H:%M UTC")
    count = unsettled.minute_count
    minutes = "1 minute is" if count == 1 else f"{count:,} minutes are"
    return f"{minutes} not settled; {oldest}: {unsettled.problem}"


def _pace(
    view: DestinationView, *, is_paused: bool, slow_after_s: float
) -> tuple[StreamVerdict, str]:
    """Whether what is there moves as it should, once nothing worse is known."""
    if is_paused and view.backlog_events:
        return StreamVerdict.SLOW, f"it is paused, and {view.backlog_events:,} events wait"
    if view.oldest_age_s is not None and view.oldest_age_s >= slow_after_s:
        waiting = view.balance.waiting
        what = f"{waiting:,} wait for a retry, " if waiting else ""
        return StreamVerdict.SLOW, f"{what}the oldest event is {view.oldest_age_s:,.0f} s old"
    p95_s = view.since_accepted.p95_ms / 1000 if view.since_accepted else 0.0
    if p95_s >= slow_after_s:
        return StreamVerdict.SLOW, f"95 % of events arrive within {p95_s:,.1f} s, not sooner"
    return StreamVerdict.OK, ""
