"""Measures how fast one event is found by its id, when observe's index has ten million."""

import time
from collections.abc import Callable
from typing import Any

import httpx

from deploy.local.stack import Stack
from observe.index.entries import entries_of_ids
from observe.index.store import EventIndex
from observe.settings import ObserveSettings
from shared.event.topics import stream_topic

ENTRIES = 10_000_000
_LOOKS = 200
# The number of ids in a row of the ledger.
_ROW = 900
_PATIENCE_S = 120.0


def find_ms(
    stack: Stack, url: str, *, stream: str, tenant: str, wait: Callable[[Callable[[], bool]], None]
) -> tuple[list[float], list[float]]:
    """Return the times of searches through the gateway, for known and for unknown ids, in ms.

    `url`: the address of the stream's events.
    """
    with httpx.Client(timeout=60) as client:

        def asked(**query: Any) -> dict[str, Any]:
            answer = client.get(url, params=query)
            answer.raise_for_status()
            body: dict[str, Any] = answer.json()
            return body

        # The oldest events, which a search backwards from the end reaches last.
        since = {"from": "2020-01-01T00:00:00Z", "limit": _LOOKS}
        ids = [event["id"] for event in asked(**since)["events"]]
        _fill(stack, stream_topic(stream), tenant)
        wait(lambda: asked(id=ids[0])["index"] == "found")
        # An answer of "none" means that the index has reached the end of the ledger.
        wait(lambda: asked(id="nobody's")["index"] == "none")
        took_ms, nothing_ms = [], []
        for event_id in ids:
            begun_s = time.perf_counter()
            page = asked(id=event_id)
            took_ms.append((time.perf_counter() - begun_s) * 1000)
            assert page["index"] == "found", page["index"]
            assert [event["id"] for event in page["events"]] == [event_id]
            begun_s = time.perf_counter()
            page = asked(id=f"{event_id}-is-not-there")
            nothing_ms.append((time.perf_counter() - begun_s) * 1000)
            assert (page["index"], page["events"], page["is_complete"]) == ("none", [], True)
    return sorted(took_ms), sorted(nothing_ms)


def _fill(stack: Stack, topic: str, tenant: str) -> None:
    """Stop observe, add many ids to its index as rows of the ledger would, and start it again."""
    stack.children["observe"].stop(_PATIENCE_S)
    folder = stack.settings.folder / "observe" / "index"
    bytes_max = ObserveSettings.model_fields["index_bytes_max"].default
    index = EventIndex(folder, bytes_max, lambda _: tenant)
    position = index.position
    for first in range(0, ENTRIES, _ROW):
        ids = [f"made-up-{number}" for number in range(first, first + _ROW)]
        index.add(topic, entries_of_ids(topic, 0, first, ids))
        if index.is_full:
            index.seal(position)
    index.seal(position)
    (observe,) = (service for service in stack.services if service.name == "observe")
    stack.spawn(observe)
