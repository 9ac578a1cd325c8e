"""Writes an overview as JSON for programs, `hifi top` first among them."""

from typing import Any

import msgspec

from observe.console.pages.overview_page import headline
from observe.lag.time_shares import time_shares
from shared.proof.overview import Overview


def as_json(overview: Overview) -> dict[str, Any]:
    """Every field under its own name, enums as their words; first what the console says first."""
    members = msgspec.to_builtins(overview, str_keys=True)
    for stream, view in zip(members["streams"], overview.streams, strict=True):
        for destination, shown in zip(stream["destinations"], view.destinations, strict=True):
            destination["time_shares"] = dict(time_shares(shown))
    return {"verdict": overview.verdict.value, "headline": headline(overview), **members}
