"""Turns what is sent into a line of JSON with an id, the same however often it goes."""

import json
import json.encoder
import os
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeAlias

from hifi_client.errors import NotAnEventError

Given: TypeAlias = Mapping[str, Any] | str | bytes

# What the gateway takes of one event (HIFI_GATEWAY_EVENT_BYTES_MAX).
EVENT_BYTES_MAX = 1_000_000


def _cannot(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _encoder() -> Callable[[Any], str]:
    """What writes JSON. The standard library makes an encoder for each call; one does for all."""
    plain = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_cannot
    )
    try:
        make, texts = (vars(json.encoder)[name] for name in ("c_make_encoder", "encode_basestring"))
        kept = make(None, _cannot, texts, None, ":", ",", False, False, False)
        if "".join(kept({"a": [1, "b"]}, 0)) == '{"a":[1,"b"]}':
            return lambda members: "".join(kept(members, 0))
    except (KeyError, TypeError):
        # Another Python than the usual one.
        pass
    return plain.encode


_encode = _encoder()


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
    event: Given, *, event_id: str | None = None, key: str | None = None
) -> tuple[str, bytes]:
    """The event's id and its line; what is given as text keeps its bytes, but for line breaks."""
    # Asked first, as it nearly always is one, and asking an abstract class takes longer.
    is_given = type(event) is dict or isinstance(event, Mapping)
    members: Mapping[str, Any] = event if is_given else _read(event)  # type: ignore[assignment, arg-type]
    added: dict[str, Any] = {}
    if event_id is not None:
        added["id"] = event_id
    elif (given := members.get("id")) is None:
        added["id"] = _ids.new()
    elif not isinstance(given, str):
        raise NotAnEventError(f"The id of an event is a text, not {given!r:.100}.")
    if key is not None:
        added["partitionkey"] = key
    if added or is_given:
        line = _encoded({**members, **added} if added else members)
    else:
        assert isinstance(event, str | bytes), "it was read"
        line = event if isinstance(event, bytes) else event.encode()
        if b"\n" in line or b"\r" in line:
            # JSON has them between its tokens only.
            line = line.replace(b"\n", b" ").replace(b"\r", b" ")
    if len(line) > EVENT_BYTES_MAX:
        raise NotAnEventError(
            f"The event has {len(line):,} bytes and an event may have {EVENT_BYTES_MAX:,}:"
            " send less, or where the rest is to be found."
        )
    return added.get("id") or members["id"], line


def id_of(line: bytes) -> str:
    """The id in a line that `line_of` has made."""
    return str(json.loads(line)["id"])


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        members = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotAnEventError(f"This is not JSON ({error}): {text!r:.100}") from error
    if not isinstance(members, dict):
        raise NotAnEventError(f"An event is a JSON object, and this is none: {text!r:.100}")
    return members


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not in the JSON standard")


def _encoded(members: Mapping[str, Any]) -> bytes:
    try:
        return _encode(members if isinstance(members, dict) else dict(members)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotAnEventError(f"This cannot be written as JSON ({error}).") from error
