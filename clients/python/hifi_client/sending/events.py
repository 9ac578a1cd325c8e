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
    """Ids that no other process has: random once, then counted, as random bytes cost more."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._begin, self._numbers = os.urandom(12).hex(), count(1)

    def new(self) -> str:
        return f"{self._begin}-{next(self._numbers):x}"


_ids = _Ids()
# Two processes out of one must not go on with the same ids.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.renew)


def line_of(
    event: Given,
    *,
    event_id: str | None = None,
    key: str | None = None,
    encode: Encode = write_json,
) -> tuple[str, bytes]:
    """The event's id and its line; an event given as text keeps its bytes except line breaks."""
    # Asked first, as it nearly always is one, and asking an abstract class takes longer.
    is_given = type(event) is dict or isinstance(event, Mapping)
    members: Mapping[str, Any] = event if is_given else _read(event)  # type: ignore[assignment, arg-type]
    added: dict[str, Any] = {}
    found: Any
    if event_id is not None:
        found = added["id"] = event_id
    elif (found := members.get("id")) is None:
        found = added["id"] = _ids.new()
    elif not isinstance(found, str):
        raise NotAnEventError(f"The id of an event is a text, not {found!r:.100}.")
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
    """Events as they go: each by itself, or all in one text with a break behind each."""

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
    """The ids and lines of many, as `line_of` makes them."""
    given = list(events)
    # The most common case, without a call for each event.
    if key is None and encode is write_json and set(map(type, given)) == {dict}:
        ids, members = _with_ids(given)  # type: ignore[arg-type]
        if set(map(type, ids)) == {str}:
            try:
                lines = Lines(write_json_many(members), len(ids))
            # Each encoder has errors of its own.
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
    """An encoder of somebody else's as one for `line_of`."""
    return lambda members: _unbroken(encode(members))


def id_of(line: bytes) -> str:
    """The id in a line that `line_of` has made."""
    return str(json.loads(line)["id"])


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not in the JSON standard")


# The standard library makes one of these for each call, too.
_decoder = json.JSONDecoder(parse_constant=_refuse)


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        given = (text if isinstance(text, str) else text.decode()).strip(" \t\r\n")
        members, end = _decoder.raw_decode(given)
    except (ValueError, RecursionError) as error:
        raise NotAnEventError(f"This is not JSON ({error}): {text!r:.100}") from error
    if not isinstance(members, dict) or end < len(given):
        raise NotAnEventError(f"An event is a JSON object, and this is none: {text!r:.100}")
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
        f"The event has {len(line):,} bytes and an event may have {EVENT_BYTES_MAX:,}:"
        " send less, or where the rest is to be found."
    )


def _unbroken(text: str | bytes) -> bytes:
    line = text if isinstance(text, bytes) else text.encode()
    if b"\n" in line or b"\r" in line:
        # JSON has them between its tokens only.
        line = line.replace(b"\n", b" ").replace(b"\r", b" ")
    return line
