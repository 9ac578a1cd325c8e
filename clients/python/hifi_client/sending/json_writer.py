"""Writes an event as JSON, with msgspec if it is installed, which is five times as fast."""

import json
import json.encoder
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Encode: TypeAlias = Callable[[dict[str, Any]], bytes]
# Lines, or one text with a line break after each.
EncodeMany: TypeAlias = Callable[[Sequence[dict[str, Any]]], list[bytes] | bytes]


def _cannot(value: object) -> Any:
    raise TypeError(f"JSON has no {type(value).__name__}")


def _encoder(default: Callable[[Any], Any]) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default
    )


def plain_writer() -> Encode:
    """Return a writer with one encoder for all calls; the standard library makes one for each."""
    plain = _encoder(_cannot)
    try:
        make, texts = (vars(json.encoder)[name] for name in ("c_make_encoder", "encode_basestring"))
        kept = make(None, _cannot, texts, None, ":", ",", False, False, False)
        if "".join(kept({"a": [1, "b"]}, 0)) == '{"a":[1,"b"]}':
            return lambda members: "".join(kept(members, 0)).encode()
    except (KeyError, TypeError):
        # This Python's json module has other internals.
        pass
    return lambda members: plain.encode(members).encode()


def fast_writers() -> tuple[Encode, EncodeMany] | None:
    """Return msgspec's writers, if installed; they also take dates, UUIDs and dataclasses.

    The first writes one event, the second many in one call, which takes half the time.
    """
    try:
        from msgspec import to_builtins  # noqa: PLC0415
        from msgspec.json import Encoder  # noqa: PLC0415
    except ImportError:
        return None
    fast, careful = Encoder(), _encoder(to_builtins)

    def checked(members: dict[str, Any], line: bytes) -> bytes:
        # msgspec writes NaN as null, which is another value; only the caller's own JSON texts can
        # have line breaks.
        is_line = b"null" not in line and b"\n" not in line
        return line if is_line else careful.encode(members).encode()

    def write(members: dict[str, Any]) -> bytes:
        try:
            line = fast.encode(members)
        # The fast encoder refuses some valid values (a key that is None, a subclass of str).
        except (TypeError, ValueError):
            return careful.encode(members).encode()
        return checked(members, line)

    def write_many(events: Sequence[dict[str, Any]]) -> list[bytes] | bytes:
        try:
            text = fast.encode_lines(events)
        except (TypeError, ValueError):
            return list(map(write, events))
        is_well = b"null" not in text and text.count(b"\n") == len(events)
        return text if is_well else list(map(write, events))

    return write, write_many


def _plain_writers() -> tuple[Encode, EncodeMany]:
    write = plain_writer()
    return write, lambda events: list(map(write, events))


write_json, write_json_many = fast_writers() or _plain_writers()
