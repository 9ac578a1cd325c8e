"""Reads a reply that took a part of a batch: which events failed, each with a status.

`{"failed": [{"id": "a", "status": 503}, {"index": 4, "status": 400}]}` under status 207, or under
any 2xx with our media type. Whoever never heard of it and answers 207 has taken the whole batch.

An id may stand twice in a batch. An entry with its index means that one event; one without means
all of that id, as a repeat is better than a loss.
"""

import json
from collections.abc import Mapping, Sequence

# Says that the body is such a report, under any 2xx.
PARTIAL_TYPE = "application/vnd.hifi.partial+json"
MULTI_STATUS = 207
# Of an event that is named as failed and nothing more: worth another try.
DEFAULT_STATUS = 500


class UnreadableReportError(ValueError):
    """It claims to be a report, and nobody can tell which events it means."""


def failed_events(report: bytes, ids: Sequence[str], *, is_ours: bool) -> Mapping[int, int]:
    """Position in the batch and status of each failed event; `is_ours` if the type says so."""
    try:
        said = json.loads(report)
    except (ValueError, RecursionError) as error:
        if is_ours:
            raise UnreadableReportError(f"no JSON: {error}") from error
        return {}
    entries = said.get("failed") if isinstance(said, dict) else None
    if entries is None and not is_ours:
        return {}
    if not isinstance(entries, list):
        raise UnreadableReportError("it has no list of failed events")
    positions: dict[str, list[int]] = {}
    for position, event_id in enumerate(ids):
        positions.setdefault(event_id, []).append(position)
    by_id: dict[int, int] = {}
    by_index: dict[int, int] = {}
    for entry in entries:
        status = _status(entry)
        named = _positions(entry, positions, len(ids))
        if len(named) == 1:
            by_index[named[0]] = status
            continue
        for position in named:
            # Two entries of one id, with a status each: nobody can tell which event is which.
            is_other = by_id.setdefault(position, status) != status
            by_id[position] = DEFAULT_STATUS if is_other else status
    return by_id | by_index


def _status(entry: object) -> int:
    status = entry.get("status", DEFAULT_STATUS) if isinstance(entry, dict) else None
    # A status of success cannot be a failure's.
    if type(status) is not int or not 300 <= status <= 599:  # noqa: PLR2004 - RFC 9110
        raise UnreadableReportError(f"{entry!r:.80} has no status from 300 to 599")
    return status


def _positions(
    entry: Mapping[str, object], positions: Mapping[str, Sequence[int]], count: int
) -> Sequence[int]:
    match entry:
        case {"id": str(event_id)} if event_id in positions:
            named = positions[event_id]
            index = entry.get("index")
            return (index,) if type(index) is int and index in named else named
        case {"index": int(index)} if 0 <= index < count and type(index) is int:
            return (index,)
        case _:
            raise UnreadableReportError(f"{entry!r:.80} names no event of the batch")
