"""Plays the senders of a chaos run: each posts to one stream, and keeps its answers.

An id counts as acknowledged only when an answer says so. A batch without an answer is sent again
half of the time, with the same ids, as a careful customer does.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import httpx

from shared.runtime.clock import now_ms

# Statuses of an event that is certainly not stored, and of one that is not acknowledged.
_REFUSED = {"retry", "rejected"}
_NOT_TAKEN = {"unknown", *_REFUSED}
# Answers that promise that no event is stored.
_NOTHING_STORED = {400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 503}
# A frozen gateway answers nothing; a customer does not wait forever.
_TIMEOUT_S = 6.0
# How long a sender rests after a refusal, or while its stream does not exist.
_REST_S = 0.5
_LATE_MS = (60_000, 120_000, 180_000)


@dataclass
class Sender:
    """One customer's sender for one stream, in a thread of its own."""

    gateway: str
    tenant: str
    stream: str
    batch: int
    every_s: float
    dice: Random
    key: Callable[[], str]
    acked: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    statuses: dict[int, int] = field(default_factory=dict)
    # Once set, one request is not sent at all and counts as answered with 200.
    lies_once: bool = False
    # How often each id was sent without an answer saying that it was not stored.
    maybe_stored: Counter[str] = field(default_factory=Counter)
    # Once set, events carry this time, until one is acknowledged.
    _happened_ms: int | None = None
    _had_late: threading.Event = field(default_factory=threading.Event)
    _number: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _may_send: threading.Event = field(default_factory=threading.Event)
    # Held while a request is under way.
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"sender {self.stream}", daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        self._may_send.set()

    def pause(self) -> None:
        """Stop sending; return when no request is under way."""
        self._may_send.clear()
        assert self._turn.acquire(timeout=5 * _TIMEOUT_S), (
            f"{self.stream}: the sender does not rest"
        )
        self._turn.release()

    def had_late(self, happened_ms: int) -> bool:
        """Send an event of a given time; return whether it was acknowledged soon enough."""
        self._had_late.clear()
        self._happened_ms = happened_ms
        return self._had_late.wait(5 * _TIMEOUT_S)

    def stop(self) -> None:
        self._stop.set()
        self._may_send.set()
        self._thread.join(5 * _TIMEOUT_S)

    def _run(self) -> None:
        with httpx.Client(timeout=_TIMEOUT_S) as client:
            while not self._stop.is_set():
                self._may_send.wait()
                with self._turn:
                    if self._may_send.is_set() and not self._stop.is_set():
                        self._send(client)
                self._stop.wait(self.every_s)

    def _send(self, client: httpx.Client) -> None:
        ids = [self._next_id() for _ in range(self.batch)]
        # Sometimes an event is sent long after it happened.
        back_ms = self.dice.choice(_LATE_MS) if self.dice.random() < 0.03 else 0
        happened_ms = asked_ms = self._happened_ms
        if back_ms and happened_ms is None:
            happened_ms = now_ms() - back_ms
        if not self._post(client, ids, happened_ms) and self.dice.random() < 0.5:
            self._stop.wait(_REST_S)
            self._post(client, ids, happened_ms)
        if asked_ms is not None and not self.acked.isdisjoint(ids):
            self._happened_ms = None
            self._had_late.set()

    def _next_id(self) -> str:
        self._number += 1
        # The same tenant may recreate the stream; another tenant's ids differ anyway.
        return f"{self.tenant}.{self.stream}.{self.dice.choice('ab')}.{self._number}"

    def _post(self, client: httpx.Client, ids: list[str], happened_ms: int | None) -> bool:
        """Return whether an answer settled the fate of all of these ids."""
        if self.lies_once:
            self.lies_once = False
            self.sent.update(ids)
            self.acked.update(ids)
            return True
        headers = {
            "authorization": f"Bearer {self.key()}",
            "content-type": "application/x-ndjson",
        }
        happened = {} if happened_ms is None else {"time_ms": happened_ms}
        lines = [
            json.dumps({"id": one, "kind": one.split(".")[2], "pad": "x" * 60, **happened})
            for one in ids
        ]
        if self.dice.random() < 0.05:
            lines.append("{no json")
        self.sent.update(ids)
        self.maybe_stored.update(ids)
        url = f"{self.gateway}/v1/streams/{self.stream}/events"
        try:
            response = client.post(url, content="\n".join(lines), headers=headers)
        except httpx.HTTPError:
            self.statuses[0] = self.statuses.get(0, 0) + 1
            return False
        refused = not_stored(response, ids)
        self.maybe_stored.subtract(refused)
        self.statuses[response.status_code] = self.statuses.get(response.status_code, 0) + 1
        self.acked.update(acknowledged(response, ids))
        if response.status_code in {401, 404, 429}:
            self._stop.wait(_REST_S)
            return True
        return response.status_code not in {500, 503, 504}


def not_stored(response: httpx.Response, ids: list[str]) -> set[str]:
    """Return the ids that an answer promises not to have stored."""
    if response.status_code in _NOTHING_STORED:
        return set(ids)
    return {one["id"] for one in _results(response) or () if one["status"] in _REFUSED} & set(ids)


def acknowledged(response: httpx.Response, ids: list[str]) -> set[str]:
    """Return the ids that an answer promises to keep."""
    results = _results(response)
    if results is None:
        return set(ids) if response.status_code in {200, 204} else set()
    if response.status_code not in {200, 207, 504}:
        return set()
    # Ids that are not listed are stored, even beside ids of unknown outcome (504).
    return set(ids) - {entry["id"] for entry in results if entry["status"] in _NOT_TAKEN}


def _results(response: httpx.Response) -> list[dict[str, str]] | None:
    """Return the results of single events in an answer, or None if it lists none."""
    try:
        said = response.json() if response.content else {}
    except ValueError:
        return None
    found: list[dict[str, str]] | None = said.get("results")
    return found
