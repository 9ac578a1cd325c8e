"""Finds what keeps a destination from taking events, and quotes the destination's answer if any.

It uses the outcomes of the last minutes, and the flow that its workers share. A person's request
that no worker has received yet takes precedence over both.
"""

from shared.config.destination import Destination
from shared.event.times import HOUR_MS, MINUTE_MS
from shared.flow.flow import Blocking, Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.proof.last_answer import LastAnswer
from shared.proof.overview import DestinationView, Finding, RecentOutcomes, StreamVerdict
from shared.retry.attempt import CONFIG_FAULTS

# Outcomes of this span take precedence over those of the last minutes, so that people who have
# repaired a destination see that within this time.
LATEST_MS = 30_000
# A destination is hopeless after this many failed requests in a row, or after this long with
# requests but no success. Local retries are over then, and people hear of it within 15 s.
_FAILURES_IN_ROW = 10
HOPELESS_MS = 3_000
# A destination counts as rate-limited from this share of outcomes on, because nine of ten events
# that wait at its request are late.
_LIMITED_PART_MIN = 0.1
# Characters of an answer in a sentence; the destination's page shows more.
_TEXT_CHARS_MAX = 120
# The cause of a halt by one event of an ordered stream.
BLOCKING = "blocking"
_REJECTIONS = frozenset(f"status_{status}" for status in CONFIG_FAULTS)


def trouble_of(
    view: DestinationView,
    to: Destination,
    record: FlowRecord | None,
    latest: RecentOutcomes,
    *,
    now_ms: int,
) -> Finding | None:
    """Return a destination's trouble, if any; `latest` is the newest part of `lately`."""
    heard = heard_of(to, record)
    flow = heard.flow if heard else None
    words = _said(flow, view.last_refusal)
    if halted := _halted(view, to, heard, said=words):
        return halted
    if record is not None and heard is None:
        # A person has asked for a try since, so earlier outcomes no longer count.
        return None
    state = heard.state if heard else FlowState.CLOSED
    verdict = _verdict(flow, state, view.lately, latest, now_ms=now_ms)
    if verdict is None:
        return None
    if verdict is StreamVerdict.REJECTING:
        ended = view.lately.delivered + view.lately.refused
        share = f"{view.lately.refused:,} of {ended:,} refused in 5 min"
    else:
        owed = view.lately.delivered + view.backlog_events
        share = f"{view.lately.delivered:,} of {owed:,} delivered in 5 min"
    return Finding(verdict, share + words, _cause(view))


def _halted(
    view: DestinationView, to: Destination, heard: FlowRecord | None, *, said: str
) -> Finding | None:
    """Return the finding if a person, or a destination's own answers, stopped the destination."""
    backlog = counted(view.backlog_events, "waits", "wait")
    if to.is_disabled:
        reason = "a person has disabled it: its events become dead letters"
        return Finding(StreamVerdict.DISABLED, reason, "disabled")
    if heard is not None and heard.state is FlowState.DISABLED:
        reason = f"given up since {_clock(heard.since_ms)}, its events become dead letters{said}"
        return Finding(StreamVerdict.DISABLED, reason, _cause(view))
    if to.is_paused:
        return Finding(StreamVerdict.PAUSED, f"a person has paused it; {backlog}", "paused")
    if heard is not None and heard.flow.is_blocked and to.order == "stream":
        return Finding(StreamVerdict.HELD, _blocked(heard.flow.blocking, backlog) + said, BLOCKING)
    if heard is not None and heard.flow.is_held:
        reason = f"held since {_clock(heard.since_ms)}; {backlog}{said}"
        return Finding(StreamVerdict.HELD, reason, _cause(view))
    return None


def _blocked(blocking: Blocking, backlog: str) -> str:
    """Describe the event that all later events of the stream wait for."""
    tries = "once" if blocking.attempts == 1 else f"{blocking.attempts} times"
    return (
        f"the event at offset {blocking.offset} has blocked all later ones since"
        f" {_clock(blocking.since_ms)}: tried {tries}, again at {_clock(blocking.until_ms)};"
        f" {backlog} in order"
    )


def heard_of(to: Destination, record: FlowRecord | None) -> FlowRecord | None:
    """Return the record if it is newer than a person's last request to try the destination now."""
    if record is None or record.is_before(to):
        return None
    return record


def _verdict(
    flow: Flow | None,
    state: FlowState,
    lately: RecentOutcomes,
    latest: RecentOutcomes,
    *,
    now_ms: int,
) -> StreamVerdict | None:
    if state in {FlowState.OPEN, FlowState.HALF_OPEN}:
        return StreamVerdict.FAILING
    is_failing = flow is not None and flow.failing_since_ms > 0
    if flow is not None and is_failing and flow.last_refusal is not None:
        # The destination's answer counts more than Hifi's reason to hold events back meanwhile.
        is_long = now_ms - flow.failing_since_ms >= HOPELESS_MS
        is_hopeless = is_long or flow.failures_in_row >= _FAILURES_IN_ROW or not latest.delivered
        verdict = _verdict_of(flow.last_refusal.reason)
        if is_hopeless and verdict is not None:
            return verdict
    # Earlier failures no longer count once an event was taken.
    is_well_again = flow is not None and not is_failing and flow.last_ok_at_ms > 0
    counts = latest if latest.total or is_well_again else lately
    bad = {
        StreamVerdict.FAILING: counts.failed,
        StreamVerdict.REJECTING: counts.refused,
        StreamVerdict.RATE_LIMITED: counts.rate_limited,
    }
    if counts.total and 2 * sum(bad.values()) >= counts.total:
        return max(bad, key=bad.__getitem__)
    is_rate_limited = counts.rate_limited > _LIMITED_PART_MIN * counts.total
    return StreamVerdict.RATE_LIMITED if is_rate_limited else None


def _verdict_of(reason: str) -> StreamVerdict | None:
    """Return the verdict for one answer; None if it may be the event's fault."""
    if reason == "status_429":
        return StreamVerdict.RATE_LIMITED
    if reason in _REJECTIONS:
        return StreamVerdict.REJECTING
    return None if reason.startswith("status_4") else StreamVerdict.FAILING


def _cause(view: DestinationView) -> str:
    return view.last_refusal.reason if view.last_refusal else ""


def _said(flow: Flow | None, answer: LastAnswer | None) -> str:
    """Return the last answer, as the end of a sentence."""
    if answer is None:
        return ""
    since_ms = flow.failing_since_ms if flow else 0
    when = f"since {_clock(since_ms)}" if since_ms else f"at {_clock(answer.at_ms)}"
    text = answer.text[:_TEXT_CHARS_MAX]
    return f"; {words_of(answer.reason)} {when}" + (f": {text}" if text else "")


def counted(number: int, one: str, many: str) -> str:
    """Return the number of events, followed by the singular or the plural verb."""
    return f"1 event {one}" if number == 1 else f"{number:,} events {many}"


def words_of(reason: str) -> str:
    """Return a reason in plain words: the status, or the network's error."""
    return reason.removeprefix("status_").replace("_", " ")


def _clock(at_ms: int) -> str:
    """Return hours and minutes, UTC."""
    return f"{at_ms // HOUR_MS % 24:02}:{at_ms % HOUR_MS // MINUTE_MS:02}"
