"""Turns an event into a line of JSON with an id, which stays the same for every retry."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, TypeAlias

from hifi_client.errors import NotAnEventError
from hifi_client.sending.json_writer import Encode, write_json, write_json_many

Given: TypeAlias = Mapping[str, Any] | str | bytes

# The gateway's default limit for one event (HIFI_GATEWAY_EVENT_BYTES_MAX).
EVENT_BYTES_MAX = 1_000_000


class _Ids:
    """Makes ids that no other process has: one random part, then a count (cheaper than random)."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._begin, self._numbers = os.urandom(12).hex(), count(1)

    def new(self) -> str:
        return f"{self._begin}-{next(self._numbers):x}"


_ids = _Ids()
# After a fork, parent and child must not make the same ids.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.renew)


def line_of(
    event: Given,
    *,
    event_id: str | None = None,
    key: str | None = None,
    encode: Encode = write_json,
) -> tuple[str, bytes]:
    """Return the event's id and line; an event given as text keeps its bytes except line breaks."""
    # Check for dict first: nearly all events are dicts, and isinstance with an abstract class is
    # slow.
    is_given = type(event) is dict or isinstance(event, Mapping)
    members: Mapping[str, Any] = event if is_given else _read(event)  # type: ignore[assignment, arg-type]
    added: dict[str, Any] = {}
    found: Any
    if event_id is not None:
        found = added["id"] = event_id
    elif (found := members.get("id")) is None:
        found = added["id"] = _ids.new()
    elif not isinstance(found, str):
        raise NotAnEventError(f"The id of an event must be a text, not {found!r:.100}.")
    if key is not None:
        added["partitionkey"] = key
    if added:
        line = _encoded({**members, **added}, encode)
    elif is_given:
        line = _encoded(members, encode)
    else:
        line = _unbroken(event)  # type: ignore[arg-type]
    if len(line) > EVENT_BYTES_MAX:
        raise _too_large(line)
    return found, line


class Lines:
    """Events to send: single lines, or one text with a line break after each."""

    def __init__(self, lines: list[bytes] | bytes, count: int) -> None:
        self.text = lines if isinstance(lines, bytes) and count > 1 else None
        self._lines = lines
        self._count = count

    def __len__(self) -> int:
        return self._count

    def each(self) -> list[bytes]:
        if isinstance(self._lines, bytes):
            self._lines = self._lines.split(b"\n")[:-1]
        return self._lines


def lines_of(
    events: Iterable[Given], *, key: str | None = None, encode: Encode = write_json
) -> tuple[list[str], Lines]:
    """Return the ids and lines of many events, as `line_of` makes them."""
    given = list(events)
    # The most common case needs no call for each event.
    if key is None and encode is write_json and set(map(type, given)) == {dict}:
        ids, members = _with_ids(given)  # type: ignore[arg-type]
        if set(map(type, ids)) == {str}:
            try:
                lines = Lines(write_json_many(members), len(ids))
            # Each encoder has its own errors.
            except Exception as error:
                raise _not_json(error) from error
            is_small = lines.text is not None and len(lines.text) <= EVENT_BYTES_MAX
            if not is_small and len(longest := max(lines.each(), key=len)) > EVENT_BYTES_MAX:
                raise _too_large(longest)
            return ids, lines
    pairs = [line_of(event, key=key, encode=encode) for event in given]
    return [found for found, _ in pairs], Lines([line for _, line in pairs], len(pairs))


def _with_ids(events: list[dict[str, Any]]) -> tuple[list[Any], list[dict[str, Any]]]:
    ids = [event.get("id") for event in events]
    if None not in ids:
        return ids, events
    ids = [_ids.new() if found is None else found for found in ids]
    return ids, [{**event, "id": found} for event, found in zip(events, ids, strict=True)]


def unbroken(encode: Callable[[dict[str, Any]], bytes | str]) -> Encode:
    """Return an encoder for `line_of`: the caller's, without line breaks in its results."""
    return lambda members: _unbroken(encode(members))


def id_of(line: bytes) -> str:
    """Return the id in a line that `line_of` has made."""
    return str(json.loads(line)["id"])


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not in the JSON standard")


# One decoder for all calls; the standard library would make one for each.
_decoder = json.JSONDecoder(parse_constant=_refuse)


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        given = (text if isinstance(text, str) else text.decode()).strip(" \t\r\n")
        members, end = _decoder.raw_decode(given)
    except (ValueError, RecursionError) as error:
        raise NotAnEventError(f"This is not JSON ({error}): {text!r:.100}") from error
    if not isinstance(members, dict) or end < len(given):
        raise NotAnEventError(f"An event must be a JSON object: {text!r:.100}")
    return members


def _encoded(members: Mapping[str, Any], encode: Encode) -> bytes:
    try:
        return encode(members if isinstance(members, dict) else dict(members))
    except Exception as error:
        raise _not_json(error) from error


def _not_json(error: Exception) -> NotAnEventError:
    return NotAnEventError(f"This cannot be written as JSON ({error}).")


def _too_large(line: bytes) -> NotAnEventError:
    return NotAnEventError(
        f"The event has {len(line):,} bytes, but an event may have only {EVENT_BYTES_MAX:,}:"
        " send less, or a link to the rest."
    )


def _unbroken(text: str | bytes) -> bytes:
    line = text if isinstance(text, bytes) else text.encode()
    if b"\n" in line or b"\r" in line:
        # JSON has line breaks only between its tokens.
        line = line.replace(b"\n", b" ").replace(b"\r", b" ")
    return line
