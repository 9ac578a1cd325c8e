"""Writes an overview as JSON for programs, `hifi top` first among them."""

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from observe.console.pages.overview_page import headline
from observe.lag.time_shares import time_shares
from shared.proof.overview import Overview, worst


def as_json(overview: Overview) -> dict[str, Any]:
    """Every field under its own name, enums as their words; first what the console says first."""
    plain = _plain(overview)
    assert isinstance(plain, dict)
    for stream, shown in zip(plain["streams"], overview.streams, strict=True):
        for one, view in zip(stream["destinations"], shown.destinations, strict=True):
            one["time_shares"] = dict(time_shares(view))
    verdict = worst(tuple(stream.verdict for stream in overview.streams))
    return {"verdict": verdict.value, "headline": headline(overview), **plain}


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case dict():
            return {str(_plain(key)): _plain(item) for key, item in value.items()}
        case tuple() | list():
            return [_plain(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value
