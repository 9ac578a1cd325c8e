"""Decides nothing itself: does with a batch's events what `decide` and `refuse` say.

What is final becomes rows for Kafka; what is to be tried again here is given back to the queue.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from delivery.batches import Batch, Tried
from delivery.flow_store import Held
from delivery.http.partial_reply import UnreadableReportError, failed_events
from delivery.outcomes import Exchange, Final, outcomes_of, receipt_of
from shared.config.destination import Destination
from shared.event.envelope import History
from shared.event.record import Origin, RecordOut
from shared.flow.flow import Ended, after_attempt, may_retry_locally, parked, retried_locally
from shared.retry.attempt import Attempt, Failed, Failure, Responded, Verdict, classify
from shared.retry.decision import (
    Decision,
    Delivered,
    Park,
    Policy,
    RetryLater,
    RetryLocally,
    Situation,
    Split,
    decide,
    refuse,
)
from shared.retry.schedule import RetrySchedule

# With this many attempts behind it, nothing is tried again in place.
_NO_LOCAL_TRY = 1_000_000


@dataclass(slots=True)
class Pending:
    """A batch that waits for its next attempt."""

    batch: Batch
    local_attempt_count: int = 0
    # The attempt that is to be repeated in place, and not before when (time.monotonic).
    failed: tuple[Attempt, Exchange] | None = None
    ready_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that has ended."""

    pending: Pending
    is_probe: bool
    attempt: Attempt
    exchange: Exchange
    latency_ms: float


@dataclass(slots=True)
class Settlement:
    """What has become of one destination's events in one task."""

    destination: Destination
    schedule: RetrySchedule
    clock: Callable[[], int]
    dice: random.Random
    # The first record that the task read, for the receipts of what was not delivered.
    read_at: Origin | None
    outcomes: list[RecordOut] = field(default_factory=list)
    # Keys of which an event waits: what comes after it must not overtake it (order = "key").
    keys_waiting: set[bytes] = field(default_factory=set)

    def enter(self, held: Held, sent: Sent, *, budget_s: float) -> list[Pending]:
        """Enter what an attempt came to; the batches that go on from there, in their order."""
        batch = sent.pending.batch
        attempt, failed = _read_report(sent.attempt, batch)
        verdict = _verdict_of(self.destination, attempt, failed, batch.event_count)
        ended = Ended(attempt, verdict, batch.event_count, sent.latency_ms, sent.is_probe)
        roll = self.dice.random()
        held.flow = after_attempt(held.flow, held.limits, ended, now_ms=held.now_ms, roll=roll)
        situation = Situation(
            batch_count=batch.event_count,
            local_attempt_count=sent.pending.local_attempt_count + 1,
            budget_s=budget_s if may_retry_locally(held.flow) else -1.0,
            now_ms=self.clock(),
            roll=roll,
        )
        if failed:
            self._enter_each(held, batch, failed, sent.exchange, situation)
            return []
        decided = self._decide(batch.histories, attempt, situation, is_held=held.flow.is_held)
        # Only histories differ within a batch, so all of it goes on, or none.
        match decided[0]:
            case Delivered() as delivered:
                self.outcomes += receipt_of(self.destination.id, batch, delivered, sent.exchange)
                return []
            case RetryLocally(delay_s=delay_s):
                held.flow = retried_locally(held.flow, attempt)
                kept = [one.history for one in decided if isinstance(one, RetryLocally)]
                return [
                    Pending(
                        batch.with_histories(kept),
                        situation.local_attempt_count,
                        (attempt, sent.exchange),
                        time.monotonic() + delay_s,
                    )
                ]
            case Split():
                return [Pending(half) for half in batch.split_at(batch.event_count // 2)]
            case _:
                self._finish(held, batch, decided, sent.exchange)
                return []

    def enter_delivered(self, sent: Sent) -> Ended | None:
        """Enter a batch that was taken as a whole, and no more said; None if it was not so."""
        attempt, batch = sent.attempt, sent.pending.batch
        if not isinstance(attempt, Responded) or attempt.report or attempt.wish is not None:
            return None
        situation = Situation(
            batch.event_count,
            sent.pending.local_attempt_count + 1,
            budget_s=-1.0,
            now_ms=self.clock(),
            roll=0.0,
        )
        delivered = self._decide(batch.histories, attempt, situation, is_held=False)[0]
        if not isinstance(delivered, Delivered):
            return None
        self.outcomes += receipt_of(self.destination.id, batch, delivered, sent.exchange)
        verdict = classify(attempt, retry_on=self.destination.retry_on)
        return Ended(attempt, verdict, batch.event_count, sent.latency_ms, sent.is_probe)

    def refuse(self, held: Held, pending: Pending, failure: Failure, *, until_ms: int) -> None:
        """Settle a batch that is not tried (again); `until_ms` is of the flow's clock."""
        at_ms = self.clock()
        if pending.failed is not None and failure is not Failure.DISABLED:
            # It was tried: that attempt has its price, although it is not repeated in place.
            attempt, exchange = pending.failed
            situation = Situation(pending.batch.event_count, _NO_LOCAL_TRY, -1.0, at_ms, 0.0)
            decided = self._decide(
                pending.batch.histories, attempt, situation, is_held=held.flow.is_held
            )
            self._finish(held, pending.batch, decided, exchange)
            return
        refused = [
            refuse(
                history,
                failure,
                self.schedule,
                until_ms=at_ms + until_ms - held.now_ms,
                now_ms=at_ms,
            )
            for history in pending.batch.histories
        ]
        exchange = Exchange(batch_id="", started_at_ms=at_ms, ended_at_ms=at_ms)
        self._finish(held, pending.batch, refused, exchange)

    def _decide(
        self,
        histories: Sequence[History],
        attempt: Attempt,
        situation: Situation,
        *,
        is_held: bool,
    ) -> list[Decision]:
        """A decision for each history; when the batch is delivered, one for all."""
        policy = Policy(
            schedule=self.schedule,
            retry_on=self.destination.retry_on,
            is_held=is_held,
        )
        first = decide(histories[0], attempt, policy, situation)
        if isinstance(first, Delivered):
            return [first]
        return [first, *(decide(each, attempt, policy, situation) for each in histories[1:])]

    def _finish(
        self, held: Held, batch: Batch, decided: Sequence[Decision], exchange: Exchange
    ) -> None:
        tried = batch.tried()
        final = [decision for decision in decided if isinstance(decision, Final)]
        # One history, one decision; otherwise one of each for each event.
        final = final if len(final) == len(tried) else final * len(tried)
        self._write(held, list(zip(tried, final, strict=True)), exchange)

    def _enter_each(
        self,
        held: Held,
        batch: Batch,
        failed: Mapping[int, int],
        exchange: Exchange,
        situation: Situation,
    ) -> None:
        """Settle a batch of which the destination took a part: each failed event by its status."""
        alone = replace(situation, batch_count=1, local_attempt_count=_NO_LOCAL_TRY, budget_s=-1.0)
        pairs: list[tuple[Tried, Final]] = []
        for position, tried in enumerate(batch.tried()):
            if position not in failed:
                pairs.append((tried, Delivered("status_partial")))
                continue
            answer = Responded(failed[position], excerpt="so said of this event in a report")
            (decision,) = self._decide([tried.history], answer, alone, is_held=held.flow.is_held)
            assert isinstance(decision, Final), "alone and without a local try, it is settled"
            pairs.append((tried, decision))
        self._write(held, pairs, exchange)

    def _write(self, held: Held, pairs: Sequence[tuple[Tried, Final]], exchange: Exchange) -> None:
        """Leave the rows, and note what later events and the flow must know."""
        parks = Counter(one.history.cause for _, one in pairs if isinstance(one, Park))
        for cause, count in parks.items():
            held.flow = parked(held.flow, cause, count)
        if self.destination.order == "key":
            self.keys_waiting.update(
                tried.envelope.key
                for tried, decision in pairs
                if isinstance(decision, Park | RetryLater) and tried.envelope.key is not None
            )
        self.outcomes += outcomes_of(self.destination.id, pairs, exchange, read_at=self.read_at)


def _read_report(attempt: Attempt, batch: Batch) -> tuple[Attempt, Mapping[int, int]]:
    """The attempt, and the events that its reply names as failed, with the status of each."""
    if not isinstance(attempt, Responded) or not attempt.report:
        return attempt, {}
    ids = [tried.envelope.event_id for tried in batch.tried()]
    try:
        return attempt, failed_events(attempt.report, ids, is_ours=attempt.is_report)
    except UnreadableReportError as error:
        # It took a part of them, and we cannot tell which.
        return Failed(Failure.RESPONSE_UNREADABLE, f"partial report: {error}"), {}


def _verdict_of(
    destination: Destination, attempt: Attempt, failed: Mapping[int, int], count: int
) -> Verdict:
    """What the whole request amounts to: a report that all have failed is a failure."""
    if failed and len(failed) == count:
        attempt = Responded(max(failed.values()))
    return classify(attempt, retry_on=destination.retry_on)
