"""Writes an overview as JSON for programs, `hifi top` first among them."""

from typing import Any

import msgspec

from observe.console.pages.overview_page import headline
from observe.lag.time_shares import time_shares
from shared.proof.overview import Overview, worst


def as_json(overview: Overview) -> dict[str, Any]:
    """Every field under its own name, enums as their words; first what the console says first."""
    plain: dict[str, Any] = msgspec.to_builtins(overview, str_keys=True)
    for stream, shown in zip(plain["streams"], overview.streams, strict=True):
        for one, view in zip(stream["destinations"], shown.destinations, strict=True):
            one["time_shares"] = dict(time_shares(view))
    verdict = worst(tuple(stream.verdict for stream in overview.streams))
    return {"verdict": verdict.value, "headline": headline(overview), **plain}
