"""Writes an overview as JSON for programs, `hifi top` first among them."""

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from shared.overview import Overview


def as_json(overview: Overview) -> dict[str, Any]:
    """Every field under its own name; enums as their words."""
    plain = _plain(overview)
    assert isinstance(plain, dict)
    return plain


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
