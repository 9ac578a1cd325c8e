"""Reads a reply from a destination that took only part of a batch: which events failed, and why.

The reply is `{"failed": [{"id": "a", "status": 503}, {"index": 4, "status": 400}]}`, with status
207, or with any 2xx and our media type. A receiver that uses 207 in another sense has taken the
whole batch.

An id may occur twice in a batch. An entry with an index is about the one event there; an entry
without an index is about all events of its id, as a repeat is better than a loss.
"""

import json
from collections.abc import Mapping, Sequence

# Marks the body as such a report, with any 2xx.
PARTIAL_TYPE = "application/vnd.hifi.partial+json"
MULTI_STATUS = 207
# The status of an event that is reported without one: it is worth another try.
DEFAULT_STATUS = 500
# An event may be in one entry by id, which is for all events of that id, and in one by index.
_ENTRIES_PER_EVENT_MAX = 2
# Room for a long id, which JSON may write in six times its bytes, and a few words on the error.
_EVENT_BYTES_MAX = 2_048
_REPORT_BYTES_MAX = 4 * 1_048_576


def report_bytes_max(event_count: int) -> int:
    """Return the longest allowed report on a batch: reading it costs other destinations time."""
    return min(_EVENT_BYTES_MAX * event_count, _REPORT_BYTES_MAX)


class UnreadableReportError(ValueError):
    """A body that claims to be a report, but does not say which events it means."""


def failed_events(
    report: bytes, ids: Sequence[str], *, is_ours: bool, is_json: bool = False
) -> Mapping[int, int]:
    """Return the position in the batch and the status of each failed event.

    `is_ours` if the media type marks it as a report, `is_json` if it is at least a JSON type.
    """
    try:
        document = json.loads(report)
    except (ValueError, RecursionError) as error:
        if is_ours or (is_json and report.strip()):
            raise UnreadableReportError(f"no JSON: {error}") from error
        return {}
    entries = document.get("failed") if isinstance(document, dict) else None
    if entries is None and not is_ours:
        return {}
    if not isinstance(entries, list):
        raise UnreadableReportError("it has no list of failed events")
    if len(entries) > _ENTRIES_PER_EVENT_MAX * len(ids):
        raise UnreadableReportError(f"{len(entries)} entries for {len(ids)} events")
    positions: dict[str, list[int]] = {}
    for position, event_id in enumerate(ids):
        positions.setdefault(event_id, []).append(position)
    by_id: dict[str, int] = {}
    by_index: dict[int, int] = {}
    for entry in entries:
        status, named = _status(entry), _named(entry, positions, ids)
        if isinstance(named, int):
            by_index[named] = status
        elif by_id.setdefault(named, status) != status:
            # Two entries of one id with different statuses do not say which event is which.
            by_id[named] = DEFAULT_STATUS
    by_position = {at: status for named, status in by_id.items() for at in positions[named]}
    return by_position | by_index


def _status(entry: object) -> int:
    status = entry.get("status", DEFAULT_STATUS) if isinstance(entry, dict) else None
    # A failed event cannot have a status of success.
    if type(status) is not int or not 300 <= status <= 599:  # noqa: PLR2004 - RFC 9110
        raise UnreadableReportError(f"{entry!r:.80} has no status from 300 to 599")
    return status


def _named(
    entry: Mapping[str, object], positions: Mapping[str, Sequence[int]], ids: Sequence[str]
) -> int | str:
    """Return the position of the event that an entry names, or the id of several."""
    match entry:
        case {"id": str(event_id)} if event_id in positions:
            index, named = entry.get("index"), positions[event_id]
            if type(index) is int and 0 <= index < len(ids) and ids[index] == event_id:
                return index
            return named[0] if len(named) == 1 else event_id
        case {"index": int(index)} if 0 <= index < len(ids) and type(index) is int:
            return index
        case _:
            raise UnreadableReportError(f"{entry!r:.80} names no event of the batch")
