"""Decides how a query or an order is read, value by value; ValueError says which is no good."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gateway.problems import Problem
from shared.runtime.setup_error import KafkaUnavailableError


def check_names(given: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(f"{unknown[0][:50]}: there is no such field; there are {sorted(known)}")


def text_in(given: Mapping[str, Any], name: str) -> str | None:
    found = given.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{name}: it is not a text")
    return found


def time_ms_in(given: Mapping[str, Any], name: str) -> int | None:
    text = text_in(given, name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        at_ms = round(at.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: it is not a time such as 2026-11-21T10:00:00Z") from error
    if at.tzinfo is None:
        raise ValueError(f"{name}: it is not a time with a zone, such as 2026-11-21T10:00:00Z")
    return at_ms


def count_of(given: object, *, high: int) -> int:
    text = str(given)
    is_count = text.isascii() and text.isdigit() and len(text) <= len(str(high))
    if type(given) not in {int, str} or not is_count or not 1 <= int(text) <= high:
        raise ValueError(f"limit: {text[:50]!r} is not a whole number from 1 to {high}")
    return int(text)


def flag_of(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"{name}: {text[:50]!r} is not true or false")
    return text == "true"


def unavailable(error: KafkaUnavailableError) -> Problem:
    return Problem("kafka_unavailable", str(error), headers=((b"retry-after", b"2"),))
