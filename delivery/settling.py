"""Carries out the decisions of `decide` and `refuse` on a batch's events.

Final decisions become rows for Kafka; events to try again here get their next attempt. Nothing here
knows a destination's flow: the caller gets the news for it in the result.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import assert_never

from delivery.batches import Batch, TriedEvent, refused_group
from delivery.courier import Exchange, RequestResult
from delivery.outcomes import PARTLY_TAKEN, outcomes_of, receipt_of
from delivery.tracks import DueBatch, halves, suspect
from shared.config.destination import Destination
from shared.event.envelope import History
from shared.event.record import Origin, RecordOut
from shared.retry.attempt import Failure, Response, classify
from shared.retry.decision import (
    DeadLetter,
    Decision,
    Ended,
    Final,
    Hold,
    Park,
    RetryLater,
    RetryLocally,
    Situation,
    Split,
    Success,
    Waiting,
    decide,
    refuse,
    settle,
)
from shared.retry.schedule import RetrySchedule

# Events that were not sent for these reasons are simply sent later.
_NO_TROUBLE = frozenset({Failure.BUDGET_USED_UP, Failure.OVER_RATE})


@dataclass(frozen=True, slots=True)
class Block:
    """An event that keeps its place and blocks all behind it (order = "stream")."""

    offset: int
    # A length and no time, because the process that waits may have another clock.
    wait_ms: int
    # Empty if nothing is wrong with the event: there was no time or permission to send it.
    history: History | None = None
    # Events below this offset may already have been taken.
    sent_until: int = 0


@dataclass(frozen=True, slots=True)
class SettledBatch:
    """The result of a settled batch."""

    rows: Sequence[RecordOut] = ()
    # Batches that get another attempt, in order.
    go_on: Sequence[DueBatch] = ()
    # How many events were parked, by cause.
    parks: Mapping[str, int] = field(default_factory=dict)
    # Keys that have a waiting event now.
    keys_waiting: AbstractSet[bytes] = frozenset()
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """Settles the batches of one destination."""

    destination: Destination
    schedule: RetrySchedule
    clock: Callable[[], int]
    # The first record that the task read, for the receipts of undelivered events.
    read_at: Origin | None
    # Whether events come in the order of their stream, and stay in it.
    is_in_line: bool = False

    def after_attempt(
        self,
        due: DueBatch,
        sent: RequestResult,
        *,
        may_retry: bool = False,
        budget_s: float = 0.0,
        is_held: bool = False,
        roll: float = 0.0,
        is_by_size: bool = False,
    ) -> SettledBatch:
        """Settle a batch after an attempt; with `may_retry`, repeat it if `budget_s` allows.

        With `is_by_size` the destination refuses batches for their size.
        """
        batch = due.batch
        situation = Situation(
            batch_count=batch.event_count,
            may_retry_locally=may_retry,
            local_attempt_count=due.local_attempt_count + 1,
            budget_s=budget_s,
            now_ms=self.clock(),
            roll=roll,
            is_held=is_held,
            is_in_line=self.is_in_line,
        )
        sent = sent.after(due.failed)
        if sent.failed:
            return self._settle_each(batch, sent, situation)
        decided = self._decide(batch, sent, situation)
        # Only histories differ within a batch, so all its events get another attempt, or none.
        first = decided[0]
        match first:
            case Success():
                return SettledBatch(receipt_of(self.destination.id, batch, first, sent.exchange))
            case RetryLocally(delay_s=delay_s):
                kept = [each.history for each in decided if isinstance(each, RetryLocally)]
                ready_at_s = time.monotonic() + delay_s
                tries = situation.local_attempt_count
                again = batch.with_histories(kept)
                return SettledBatch(go_on=[DueBatch(again, tries, sent, ready_at_s, due.is_half)])
            case Split():
                is_by_size = is_by_size or sent.verdict.is_too_large
                return SettledBatch(go_on=halves(batch) if is_by_size else [suspect(batch)])
            case RetryLater() | Park() | Hold() | DeadLetter():
                return self._finish(batch, decided, sent.exchange)
            case _:
                assert_never(first)

    def refuse(
        self,
        due: DueBatch,
        failure: Failure,
        *,
        wait_ms: int,
        is_held: bool,
        is_next: bool = False,
    ) -> SettledBatch:
        """Settle a batch that must wait `wait_ms`, or, if `is_next`, only until its next turn."""
        batch, at_ms = due.batch, self.clock()
        if due.failed is not None and failure is not Failure.DISABLED:
            # The batch was tried: that attempt counts, although it is not repeated in place.
            situation = Situation(
                batch.event_count, at_ms, is_held=is_held, is_in_line=self.is_in_line
            )
            decided = self._decide(batch, due.failed, situation)
            return self._finish(batch, decided, due.failed.exchange)
        if self.is_in_line and failure in _NO_TROUBLE:
            return SettledBatch(block=Block(batch.facts.covered[0].first, wait_ms))
        # The next round continues where this one ends.
        group = refused_group(batch, self.destination)
        refused = [
            refuse(
                replace(history, refused_group=group),
                failure,
                self.schedule,
                until_ms=at_ms + wait_ms,
                now_ms=at_ms,
                is_in_line=self.is_in_line,
                is_next=is_next,
            )
            for history in batch.histories
        ]
        return self._finish(batch, refused, Exchange("", at_ms, at_ms))

    def _finish(
        self, batch: Batch, decided: Sequence[Decision], exchange: Exchange
    ) -> SettledBatch:
        tried = batch.tried()
        final = [decision for decision in decided if isinstance(decision, Ended)]
        # A shared history has one decision; otherwise each event has its own.
        final = final if len(final) == len(tried) else final * len(tried)
        return self._settled(list(zip(tried, final, strict=True)), exchange)

    def _settle_each(self, batch: Batch, sent: RequestResult, situation: Situation) -> SettledBatch:
        """Settle a batch that the destination took in part: each failed event by its status."""
        alone = replace(situation, batch_count=1, may_retry_locally=False)
        pairs: list[tuple[TriedEvent, Ended]] = []
        for position, tried in enumerate(batch.tried()):
            if position not in sent.failed:
                pairs.append((tried, Success(PARTLY_TAKEN)))
                continue
            status = sent.failed[position]
            attempt = Response(status, detail="reported for this event")
            verdict = classify(attempt, retry_on=self.destination.retry_on)
            decision = decide(tried.history, attempt, verdict, self.schedule, alone)
            assert isinstance(decision, Ended), "a single event without a local try is settled"
            pairs.append((tried, decision))
        return self._settled(pairs, sent.exchange)

    def _settled(
        self, decided: Sequence[tuple[TriedEvent, Ended]], exchange: Exchange
    ) -> SettledBatch:
        pairs: list[tuple[TriedEvent, Final]] = []
        block = None
        for index, (tried, decision) in enumerate(decided):
            ended = settle(decision, tried.envelope)
            if isinstance(ended, Hold):
                is_sent = bool(exchange.batch_id)
                block = _block(ended.history, decided[index:], is_sent=is_sent, now_ms=self.clock())
                break
            pairs.append((tried, ended))
        waiting = [(tried, decision) for tried, decision in pairs if isinstance(decision, Waiting)]
        return SettledBatch(
            rows=outcomes_of(self.destination.id, pairs, exchange, read_at=self.read_at),
            parks=Counter(
                decision.history.cause for _, decision in waiting if isinstance(decision, Park)
            ),
            keys_waiting={
                tried.envelope.key for tried, _ in waiting if tried.envelope.key is not None
            },
            block=block,
        )

    def _decide(self, batch: Batch, sent: RequestResult, situation: Situation) -> list[Decision]:
        """Return a decision for each history; if the batch is delivered, one for all."""
        decided: list[Decision] = []
        for history in batch.histories:
            decision = decide(history, sent.attempt, sent.verdict, self.schedule, situation)
            decided.append(decision)
            if isinstance(decision, Success):
                break
        return decided


def _block(
    history: History, rest: Sequence[tuple[TriedEvent, Ended]], *, is_sent: bool, now_ms: int
) -> Block:
    """Keep the first of these in its place; the others will be read and sent again.

    If they may have been taken, their new requests say so.
    """
    is_taken = any(isinstance(ended, Success) for _, ended in rest)
    is_doubtful = is_sent and (history.is_ambiguous or is_taken)
    offsets = [tried.envelope.origin.offset for tried, _ in rest]
    until = offsets[-1] + 1 if is_doubtful else 0
    return Block(offsets[0], max(0, history.not_before_ms - now_ms), history, until)
