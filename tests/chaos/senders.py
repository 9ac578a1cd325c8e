"""Plays the senders of a chaos run: each posts to one stream, and keeps what it was answered.

An id is acknowledged when the answer says so and not otherwise. What had no answer is sent again
half of the time, with the same ids, as a careful customer does.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import httpx

# What an answer says of an event that is not acknowledged.
_NOT_TAKEN = {"retry", "unknown", "rejected"}
# A frozen gateway answers nothing; a customer does not wait for ever.
_TIMEOUT_S = 6.0
# How long a refused sender rests, and one whose stream is not there.
_REST_S = 0.5


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
        """Returns when no request is under way any more."""
        self._may_send.clear()
        assert self._turn.acquire(timeout=5 * _TIMEOUT_S), (
            f"{self.stream}: the sender does not rest"
        )
        self._turn.release()

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
        if not self._post(client, ids) and self.dice.random() < 0.5:
            self._stop.wait(_REST_S)
            self._post(client, ids)

    def _next_id(self) -> str:
        self._number += 1
        # The stream may be made anew by the same tenant; another tenant's ids are others anyway.
        return f"{self.tenant}.{self.stream}.{self.dice.choice('ab')}.{self._number}"

    def _post(self, client: httpx.Client, ids: list[str]) -> bool:
        """Whether there was an answer that settles what became of all of them."""
        if self.lies_once:
            self.lies_once = False
            self.sent.update(ids)
            self.acked.update(ids)
            return True
        headers = {
            "authorization": f"Bearer {self.key()}",
            "content-type": "application/x-ndjson",
        }
        if self.dice.random() < 0.3:
            headers["prefer"] = "respond-async"
        lines = [json.dumps({"id": one, "kind": one.split(".")[2], "pad": "x" * 60}) for one in ids]
        if self.dice.random() < 0.05:
            lines.append("{no json")
        self.sent.update(ids)
        url = f"{self.gateway}/v1/streams/{self.stream}/events"
        try:
            response = client.post(url, content="\n".join(lines), headers=headers)
        except httpx.HTTPError:
            self.statuses[0] = self.statuses.get(0, 0) + 1
            return False
        self.statuses[response.status_code] = self.statuses.get(response.status_code, 0) + 1
        self.acked.update(acknowledged(response, ids))
        if response.status_code in {401, 404, 429}:
            self._stop.wait(_REST_S)
            return True
        return response.status_code not in {500, 503, 504}


def acknowledged(response: httpx.Response, ids: list[str]) -> set[str]:
    """The ids that an answer promises to keep."""
    try:
        said = response.json() if response.content else {}
    except ValueError:
        said = {}
    if "results" not in said:
        return set(ids) if response.status_code in {200, 202, 204} else set()
    if response.status_code not in {200, 202, 207, 504}:
        return set()
    # What is not listed is stored, also beside some of which nobody knows (504).
    refused = {entry["id"] for entry in said["results"] if entry["status"] in _NOT_TAKEN}
    return set(ids) - refused
