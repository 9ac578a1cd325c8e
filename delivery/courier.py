"""Takes a batch to its destination once: names the request, posts it, and reads the reply."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from delivery.attempt_log import AttemptLog
from delivery.batches import CONTENT_TYPES, Batch, batch_id
from delivery.http.attempt_spans import AttemptSpans
from delivery.http.partial_reply import UnreadableReportError, failed_events
from delivery.http.sender import Sender
from shared.config.destination import Destination
from shared.event.derived import RESTORED
from shared.proof.last_answer import ANSWER_BYTES_MAX, FailedTry, shown_text
from shared.retry.attempt import Attempt, Failure, NoResponse, Outcome, Response, Verdict, classify
from shared.runtime.spark.processor_time import processor_time

# A pause of this process uses up at most one of these steps, however long it is.
_PATIENCE_STEPS = 5


def nobodys(_: Destination) -> str:
    """Return no tenant's name, for uses in which a destination's owner does not matter."""
    return ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A receipt's record of an attempt: its batch ("" if none was sent), its start and its end."""

    batch_id: str
    started_at_ms: int
    ended_at_ms: int
    # The failed requests of its round.
    failed_tries: tuple[FailedTry, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of a request that has ended."""

    attempt: Attempt
    verdict: Verdict
    # The events that the reply names as failed, by position in the batch, with their statuses.
    failed: Mapping[int, int]
    exchange: Exchange
    latency_ms: float
    # The part of the latency in which this worker had nothing else to do.
    waited_ms: float

    @property
    def is_all_taken(self) -> bool:
        """Whether the destination took the whole batch, and gave no directive."""
        return (
            self.verdict.outcome is Outcome.OK
            and not self.failed
            and isinstance(self.attempt, Response)
            and self.attempt.directive is None
        )

    def after(self, failed: "RequestResult | None") -> "RequestResult":
        """Return the same result with its failed tries: its own, and those before it, if any."""
        tries = failed.exchange.failed_tries if failed else ()
        if self.verdict.outcome is not Outcome.OK or self.failed:
            tries = (*tries, self._failed_try)
        return replace(self, exchange=replace(self.exchange, failed_tries=tries)) if tries else self

    @property
    def _failed_try(self) -> FailedTry:
        """The failed try to keep; its text includes the events that a report names."""
        attempt, took_ms = self.attempt, round(self.latency_ms)
        failed = FailedTry(self.exchange.ended_at_ms, self.verdict.reason, took_ms)
        if isinstance(attempt, NoResponse):
            return structs.replace(failed, text=shown_text(attempt.detail))
        text = attempt.detail or attempt.report[:ANSWER_BYTES_MAX].decode(errors="replace")
        fields = {"status": attempt.status, "text": shown_text(text)}
        return structs.replace(failed, **fields, headers=dict(attempt.headers))


@dataclass(frozen=True, slots=True)
class Courier:
    """Makes the requests of one task."""

    sender: Sender
    log: AttemptLog
    clock: Callable[[], int]
    # How long to wait for an answer; by default as long as the destination's owner has set.
    patience_s: float | None = None
    # After this, another process may send the same requests.
    ours_until_ms: float = math.inf
    # Set if spans are exported.
    spans: AttemptSpans | None = None
    tenant_of: Callable[[Destination], str] = nobodys

    async def attempt(
        self, destination: Destination, batch: Batch, *, earlier_tries: int = 0
    ) -> RequestResult:
        """Send a batch once, after `earlier_tries` in the same round."""
        name = batch_id(destination.id, batch.facts.covered)
        started_at_ms = self.clock()
        headers = {
            "content-type": CONTENT_TYPES[destination.body_format],
            "user-agent": "hifi",
            "webhook-id": name,
            "webhook-timestamp": str(started_at_ms // 1000),
            "hifi-stream": destination.stream,
            "hifi-events": str(batch.event_count),
            "hifi-attempt": str(max(history.attempt_count for history in batch.histories) + 1),
        }
        if earlier_tries:
            headers["hifi-try"] = str(earlier_tries + 1)
        is_ambiguous = any(history.is_ambiguous for history in batch.histories)
        if is_ambiguous:
            headers["hifi-maybe-duplicate"] = "1"
        # A batch of the retrier may have events of several replays, and others.
        replays = sorted({history.replay_id for history in batch.histories} - {""})
        if replays:
            headers["hifi-replay"] = ", ".join(replays)
        restores = sorted({history.restore_id for history in batch.histories} - {""})
        if restores:
            headers[RESTORED] = ", ".join(restores)
        body = batch.body(destination)
        started_s, before = time.perf_counter(), processor_time()
        exchange = self.sender.post(
            destination,
            body,
            headers,
            event_count=batch.event_count,
            tenant=self.tenant_of(destination),
            is_late=self._is_late,
        )
        patience_s = self.patience_s
        attempt = await (exchange if patience_s is None else _within(exchange, patience_s))
        latency_ms = (time.perf_counter() - started_s) * 1000
        waited_ms = latency_ms - 1000 * processor_time().since(before).busy_s
        attempt, failed = _read_report(attempt, batch)
        sent = RequestResult(
            attempt,
            _verdict_of(destination, attempt, failed, batch.event_count),
            failed,
            Exchange(name, started_at_ms, self.clock()),
            latency_ms,
            waited_ms,
        )
        self.log.note(destination.id, sent.attempt, sent.verdict, batch_id=name)
        if self.spans is not None:
            traces, came = batch.traceparents(), (sent.verdict, sent.attempt)
            self.spans.note(destination, traces, *came, latency_ms=latency_ms, headers=headers)
        return sent

    def _is_late(self) -> bool:
        return self.clock() > self.ours_until_ms


async def _within(exchange: Coroutine[None, None, Attempt], patience_s: float) -> Attempt:
    """Return the attempt's result, or a slow answer once `patience_s` is over.

    The wait is split into steps, as a worker that is busy with others cannot read an answer.
    """
    task = asyncio.ensure_future(exchange)
    try:
        for _ in range(_PATIENCE_STEPS):
            done, _ = await asyncio.wait({task}, timeout=patience_s / _PATIENCE_STEPS)
            if done:
                return task.result()
    finally:
        task.cancel()
    # Close the connection before the waiting task continues.
    await asyncio.wait({task})
    return NoResponse(Failure.SLOW_ANSWER, f"no answer within {patience_s:g} s")


def _read_report(attempt: Attempt, batch: Batch) -> tuple[Attempt, Mapping[int, int]]:
    """Return the attempt, and the events that its reply names as failed, with their statuses."""
    if not isinstance(attempt, Response) or not (attempt.report or attempt.is_report):
        return attempt, {}
    ids = [tried.envelope.event_id for tried in batch.tried()]
    try:
        return attempt, failed_events(
            attempt.report, ids, is_ours=attempt.is_report, is_json=attempt.is_json
        )
    except UnreadableReportError as error:
        # The destination took some of the events, and we cannot tell which.
        return NoResponse(Failure.RESPONSE_UNREADABLE, f"partial report: {error}"), {}


def _verdict_of(
    destination: Destination, attempt: Attempt, failed: Mapping[int, int], event_count: int
) -> Verdict:
    """Return the verdict on the whole request; a report that every event failed is a failure."""
    if failed and len(failed) == event_count:
        attempt = Response(max(failed.values()))
    return classify(attempt, retry_on=destination.retry_on)
