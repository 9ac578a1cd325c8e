"""Posts batches to the gateway, and retries events.

Only events that the gateway calls retryable are sent again; never rejected or stored ones.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import quote

from deploy.cli.events.event_input import EventInput
from shared import wording
from shared.runtime.control_client import in_commands
from shared.runtime.http_client import HttpAnswer, HttpClient, NoHttpAnswerError
from shared.runtime.setup_error import NoAnswerError

_RETRYABLE = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
# Four waits of a second or more outlast a broker's restart (4 s measured).
_TRIES_MAX = 5
# Enough time to send a batch of 10 MB over a slow line, and for Kafka to store it.
POST_TIMEOUT_S = 60.0
# The gateway asks for 1 s. If it asks for minutes, a person should retry later.
_RETRY_AFTER_S_DEFAULT, _RETRY_AFTER_S_MAX = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class PostOutcome:
    """The outcome of posting some events. `unsure`: not stored, or not known to be stored."""

    accepted: int = 0
    rejected: int = 0
    unsure: int = 0
    status: str = ""
    tries: int = 0
    complaints: tuple[str, ...] = ()
    # Whether to send no more batches.
    stops: bool = False
    # `hifi receipt` takes one of these, and shows the events of that request.
    request_ids: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return self.accepted + self.rejected + self.unsure

    def plus(self, other: "PostOutcome") -> "PostOutcome":
        return replace(
            self,
            accepted=self.accepted + other.accepted,
            rejected=self.rejected + other.rejected,
            unsure=self.unsure + other.unsure,
            request_ids=self.request_ids + other.request_ids,
        )


# The outcome of the events, the events to send again, and the wait before that.
_Answer: TypeAlias = tuple[PostOutcome, list[EventInput], float]


class Poster:
    """Posts batches of events to one stream."""

    def __init__(
        self,
        gateway: HttpClient,
        *,
        stream: str,
        key: str | None = None,
        api_key: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gateway = gateway
        self._path = f"/v1/streams/{quote(stream, safe='')}/events"
        self._headers: dict[str, str | bytes] = {"content-type": "application/json"}
        if key is not None:
            self._headers["x-partition-key"] = key.encode()
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}".encode()
        self._sleep = sleep
        self._has_answered = False

    def post_all(
        self, given: Iterator[EventInput], *, batch: int, rate: float | None = None
    ) -> Iterator[PostOutcome]:
        """Post batch by batch; stop at a failed one, because the rest would fail too.

        `rate`: events per second at most.
        """
        started_s, count = time.monotonic(), 0
        while events := list(islice(given, batch)):
            if rate is not None:
                time.sleep(max(0.0, started_s + count / rate - time.monotonic()))
            outcome = self.post(events)
            yield outcome
            if outcome.stops:
                break
            count += outcome.count

    def post(self, events: Sequence[EventInput]) -> PostOutcome:
        """Send until each event is stored or rejected, or until all tries are used up."""
        total, left = PostOutcome(), list(events)
        for tries in range(1, _TRIES_MAX + 1):
            outcome, left, wait_s = self._post_once(left)
            total = replace(
                total.plus(outcome),
                status=outcome.status,
                tries=tries,
                complaints=total.complaints + outcome.complaints,
                stops=outcome.stops,
            )
            if not left:
                return total
            if tries < _TRIES_MAX:
                self._sleep(wait_s)
        complaint = (
            f"the gateway stored none of {wording.plural(len(left), 'event')} in {_TRIES_MAX} tries"
        )
        return replace(
            total,
            unsure=total.unsure + len(left),
            complaints=(*total.complaints, complaint),
            stops=True,
        )

    def _post_once(self, events: list[EventInput]) -> _Answer:
        body = b"[" + b",".join(event.raw for event in events) + b"]"
        try:
            answer = self._gateway.ask("POST", self._path, headers=self._headers, body=body)
        except NoHttpAnswerError as error:
            if error.is_unsent and not self._has_answered:
                raise NoAnswerError(
                    f"No gateway answers at {self._gateway.url} ({error}):"
                    " start one with `hifi up`, or name another gateway with --gateway URL."
                ) from error
            # The events may have been stored. Do not repeat them: only their sender knows
            # whether repeats matter.
            says = f"no answer from the gateway ({error})"
            return _failed(events, "no answer", says), [], 0.0
        self._has_answered = True
        return _judge(events, answer)


def _judge(events: list[EventInput], answer: HttpAnswer) -> _Answer:
    body = _json(answer)
    status = str(answer.status)
    request_ids = (str(body["request_id"]),) if "request_id" in body else ()
    results = body.get("results", [])
    if answer.status != HTTPStatus.OK and not results:
        # The answer is about the request as a whole.
        if answer.status in _RETRYABLE:
            return PostOutcome(status=status), events, _wait_s(answer)
        detail = body.get("detail") or answer.text[:200] or "and nothing else"
        says = f"{status} {body.get('title', '')}: {in_commands(detail)}"
        # Our own gateway refuses a wrong request before it stores any of its events.
        is_refused = answer.is_client_error and "code" in body
        failed = _failed(events, status, says, is_refused=is_refused)
        return replace(failed, request_ids=request_ids), [], 0.0
    again = [events[entry["index"]] for entry in results if entry.get("retryable")]
    complaints = tuple(
        f"{events[entry['index']].place}: {entry.get('code')}: {entry.get('detail')}"
        for entry in results
        if entry["status"] == "rejected"
    )
    accepted = int(body.get("accepted", 0))
    outcome = PostOutcome(
        accepted=accepted,
        rejected=len(complaints),
        # Events that the answer does not mention are not known to be stored.
        unsure=len(events) - accepted - len(complaints) - len(again),
        status=status,
        complaints=complaints,
        request_ids=request_ids,
    )
    return outcome, again, _wait_s(answer)


def _failed(
    events: list[EventInput], status: str, says: str, *, is_refused: bool = False
) -> PostOutcome:
    rejected, unsure = (len(events), 0) if is_refused else (0, len(events))
    return PostOutcome(0, rejected, unsure, status=status, complaints=(says,), stops=True)


def _wait_s(answer: HttpAnswer) -> float:
    try:
        asked_s = float(answer.headers.get("retry-after", _RETRY_AFTER_S_DEFAULT))
    except ValueError:
        return _RETRY_AFTER_S_DEFAULT
    return min(max(asked_s, 0.0), _RETRY_AFTER_S_MAX)


def _json(answer: HttpAnswer) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
