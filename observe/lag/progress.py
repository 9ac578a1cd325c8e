"""Follows one destination by its receipts: its progress, its lag, and its waiting events.

Events delivered before the first open one are only counted, so memory grows with open and dead
events, not with all events.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from observe.lag.answers import RecentAnswers
from observe.lag.dead_groups import DeadGroups
from observe.lag.step_counts import StepCounts, StepLags
from observe.series.steps import STEP_MS, DestinationStep, statuses
from shared.event.record import KafkaPartition, Origin, Position, Ranges
from shared.event.times import MINUTE_MS
from shared.event.topics import STREAM_RETENTION_MS, is_pipelines, stream_and_name
from shared.proof.balance import Balance, gaps_of, with_archives
from shared.proof.intervals import Offsets
from shared.proof.last_answer import DeadGroup
from shared.proof.log_buckets import LogBuckets
from shared.proof.outcome_sets import OutcomeSets
from shared.proof.overview import RecentOutcomes
from shared.proof.receipt import PASSED, Receipt, ReceiptOutcome
from shared.proof.unconfirmed import UnconfirmedReceipts
from shared.retry.attempt import Failure, NoResponse, Outcome, WebhookDirective, classify
from shared.retry.decision import (
    DEADLINE_PASSED,
    DESTINATION_REFUSED_RETRY,
    FILTERED,
    RETRIES_EXHAUSTED,
)

# Five minutes smooth out micro-batches, and still forget an incident soon.
STEP_S = 30
STEPS = 10
WINDOW_MS = STEPS * STEP_S * 1000
# Twice as long as streams are kept, and half as long as receipts are. All receipts of events that
# were accepted within this time still exist, so an event without a receipt was not delivered.
_TOLD_MS = 2 * STREAM_RETENTION_MS
# Reasons to give an event up at once, at the destination's request or because of a rule.
_REFUSED = frozenset(
    {DESTINATION_REFUSED_RETRY, Failure.POLICY_BLOCKED.value, Failure.REQUEST_UNBUILDABLE.value}
    | {f"asked_{directive.value}" for directive in WebhookDirective}
)
# Not the destination's fault, but only its owner can correct it.
_OWNERS_FAULTS = frozenset(
    {
        *(Failure.PROXY_FAILED.value, Failure.SECRET_UNAVAILABLE.value),
        *(Failure.TOKEN_UNAVAILABLE.value, Failure.INTERNAL.value),
    }
)
# Reasons not to try an event now that are not the destination's fault.
_PARKED = frozenset(
    failure.value for failure in Failure if classify(NoResponse(failure)).outcome is Outcome.PARK
)


def cause_of(reason: str) -> str:
    """Return why an event waits, as one of four causes."""
    if reason == "status_429" or "rate" in reason:
        return "rate-limited"
    if "breaker" in reason:
        return "breaker open"
    if reason in _PARKED:
        return "parked"
    return "failed attempt"


@dataclass(slots=True)
class Rolling:
    """The durations entered within the last STEPS * STEP_S seconds."""

    _steps: deque[tuple[int, LogBuckets]] = field(default_factory=lambda: deque(maxlen=STEPS))

    def merge(self, buckets: LogBuckets, *, now_ms: int) -> None:
        step = now_ms // (STEP_S * 1000)
        if not self._steps or self._steps[-1][0] < step:
            self._steps.append((step, LogBuckets()))
        self._steps[-1][1].merge(buckets)

    def add(self, value_ms: int, count: int, *, now_ms: int) -> None:
        self.merge(LogBuckets.of_counts({-value_ms: count}, until_ms=0), now_ms=now_ms)

    def read(self, *, now_ms: int) -> LogBuckets:
        """Return the durations that are not too old."""
        oldest = now_ms // (STEP_S * 1000) - STEPS
        total = LogBuckets()
        for step, buckets in self._steps:
            if step > oldest:
                total.merge(buckets)
        return total


def fate_of(receipt: Receipt) -> str:
    """Return the member of `RecentOutcomes` that a receipt counts in; empty if in none."""
    reason = receipt.reason
    match receipt.outcome:
        case ReceiptOutcome.DELIVERED:
            return "" if reason == FILTERED else "delivered"
        case ReceiptOutcome.DEAD:
            if reason.startswith("status_") or reason in _REFUSED:
                return "refused"
            return "failed" if reason in {RETRIES_EXHAUSTED, DEADLINE_PASSED} else ""
        case ReceiptOutcome.WAITING:
            cause = cause_of(reason)
            if cause == "rate-limited":
                return "rate_limited"
            return "" if cause == "parked" and reason not in _OWNERS_FAULTS else "failed"
        case _:
            assert_never(receipt.outcome)


def _outcomes_of(receipt: Receipt) -> dict[str, int]:
    """Return the number of a receipt's events in a pipeline, by outcome."""
    if receipt.outcome is not ReceiptOutcome.DELIVERED:
        return {receipt.outcome.value: receipt.event_count}
    others = {outcome: sum(minutes.values()) for outcome, minutes in receipt.not_passed.items()}
    # If a job has several receipts, the first counts all events that were not passed on.
    return {PASSED: receipt.event_count - sum(others.values()), **others}


@dataclass(slots=True)
class Recent:
    """The number of events in the last WINDOW_MS, by outcome."""

    _fates: StepCounts = field(default_factory=StepCounts)
    # A pipeline's events, by outcome.
    _outcomes: StepCounts = field(default_factory=StepCounts)

    def add(self, receipt: Receipt) -> None:
        fate = fate_of(receipt)
        if fate:
            self._fates.at(receipt.ended_at_ms)[fate] += receipt.event_count
        if is_pipelines(stream_and_name(receipt.destination_id)[1]):
            self._outcomes.at(receipt.ended_at_ms).update(_outcomes_of(receipt))

    def rates(self, *, now_ms: int, span_ms: int = MINUTE_MS) -> dict[str, float]:
        """Return the events per second that a pipeline has processed, by outcome."""
        # Includes the step in which the span began.
        total = self._outcomes.read(now_ms=now_ms, span_ms=span_ms + STEP_MS)
        return {outcome: count * 1000 / span_ms for outcome, count in total.items()}

    def of(self, step: int) -> Counter[str]:
        """Return the number of events in one step, by outcome."""
        return self._fates.of(step)

    def read(self, *, now_ms: int, span_ms: int = WINDOW_MS) -> RecentOutcomes:
        """Return the outcomes of the last `span_ms`; drop those older than the window."""
        return RecentOutcomes(**self._fates.read(now_ms=now_ms, span_ms=span_ms, kept_ms=WINDOW_MS))


@dataclass(slots=True)
class Lags:
    """The lags of events at one stage in the last minutes."""

    in_from_accepted: Rolling = field(default_factory=Rolling)
    out_from_accepted: Rolling = field(default_factory=Rolling)
    out_from_event: Rolling = field(default_factory=Rolling)
    process: Rolling = field(default_factory=Rolling)

    def take(self, receipt: Receipt) -> None:
        now_ms = receipt.ended_at_ms
        took_ms = receipt.ended_at_ms - receipt.started_at_ms
        self.process.add(took_ms, receipt.event_count, now_ms=now_ms)
        self.in_from_accepted.merge(LogBuckets.from_list(receipt.in_from_accepted), now_ms=now_ms)
        if receipt.outcome is ReceiptOutcome.DELIVERED:
            self.out_from_accepted.merge(
                LogBuckets.from_list(receipt.out_from_accepted), now_ms=now_ms
            )
            self.out_from_event.merge(LogBuckets.from_list(receipt.out_from_event), now_ms=now_ms)


@dataclass(slots=True)
class Progress:
    """One destination."""

    destination_id: str
    # Whether it counts from where its lane began, and not from the beginning of the log.
    starts_late: bool = False
    # Whether it may read from an archive the events that the log no longer has.
    reads_archives: bool = False
    delivery: Lags = field(default_factory=Lags)
    retrier: Lags = field(default_factory=Lags)
    recent: Recent = field(default_factory=Recent)
    answers: RecentAnswers = field(default_factory=RecentAnswers)
    # The lags of delivered events since their acceptance.
    _lateness: StepLags = field(default_factory=lambda: StepLags(WINDOW_MS // STEP_MS))
    # When the last receipt came, by our clock; 0: none yet.
    heard_at_ms: int = 0
    # By Kafka partition of the stream: the first counted offset, and the outcomes.
    _outcomes: dict[KafkaPartition, tuple[int, OutcomeSets]] = field(default_factory=dict)
    # Kafka partitions whose first receipt from the lane has come.
    _told: set[KafkaPartition] = field(default_factory=set)
    _unconfirmed: UnconfirmedReceipts = field(default_factory=UnconfirmedReceipts)
    _died_of: DeadGroups = field(default_factory=DeadGroups)
    # The groups and the balance as last returned; None if something that changes them has come
    # since.
    _told_groups: tuple[DeadGroup, ...] | None = None
    _told_balance: tuple[tuple[Ranges, bool], Balance] | None = None

    def take(self, receipt: Receipt, *, now_ms: int) -> None:
        """Enter one receipt; an outcome counts once, even if its receipt comes repeatedly."""
        assert receipt.destination_id == self.destination_id, "another destination's receipt"
        self.heard_at_ms = now_ms
        self._told_balance = None
        if not receipt.is_retry and self._since_ms(receipt) > now_ms - _TOLD_MS:
            # Only the first receipt of a Kafka partition counts: later ones may belong to a replay,
            # which says nothing about the events in between.
            for topic, partition, first, _ in receipt.covered:
                where = KafkaPartition(topic, partition)
                if where not in self._told:
                    self._told.add(where)
                    self._count_from(where, first)
        if self._unconfirmed.admit(receipt):
            self._count(receipt)
        # Skip most of a long history, which says nothing about the last minutes.
        if receipt.ended_at_ms > now_ms - WINDOW_MS:
            (self.retrier if receipt.is_retry else self.delivery).take(receipt)
            self.recent.add(receipt)
            self.answers.add(receipt)
            if receipt.outcome is ReceiptOutcome.DELIVERED:
                lags = LogBuckets.from_list(receipt.out_from_accepted)
                self._lateness.merge(lags, at_ms=receipt.ended_at_ms)

    def ended(self, step: int) -> tuple[DestinationStep, LogBuckets]:
        """Return the outcomes of events in a finished step, and the lags of delivered ones."""
        fates, requests = self.recent.of(step), self.answers.of(step)
        counts = (fates[name] for name in ("delivered", "refused", "failed", "rate_limited"))
        taken = DestinationStep(STEP_MS / 1000, *counts, *statuses(requests))
        return taken, self._lateness.of(step)

    def _since_ms(self, receipt: Receipt) -> int:
        """Return the time since which all receipts must exist if this one is to be the first."""
        # Pipelines get no replays, and their events may be as old as an archive.
        is_lane = is_pipelines(stream_and_name(self.destination_id)[1])
        return receipt.ended_at_ms if is_lane else receipt.accepted_at_ms_min

    def delivered_per_s(self, at_ms: int) -> float:
        """Return the events per second that it took in the last minute."""
        return self.recent.read(now_ms=at_ms, span_ms=MINUTE_MS).delivered * 1000 / MINUTE_MS

    def reached(self, position: Position) -> None:
        """Enter the positions that the lane and the retrier report."""
        self._told_balance = None
        for where, offset in position.items():
            # A lane that has not started is also at 0, and may start elsewhere.
            if offset and where in self._outcomes:
                self._count_from(where, offset)
        for receipt in self._unconfirmed.reached(position):
            self._count(receipt)

    @property
    def is_confirmed(self) -> bool:
        """Whether all outcomes in the receipts already count."""
        return not self._unconfirmed.offsets()

    def begin(self, log: Ranges) -> None:
        """Start counting with the present log; its earlier events count if they are due."""
        for where, span in log.items():
            self._outcomes_of(where, self._begin(span))

    def _begin(self, span: tuple[int, int]) -> int:
        """Return where a Kafka partition's books begin, unless its lane reports earlier events."""
        return span[self.starts_late]

    def _count_from(self, where: KafkaPartition, offset: int) -> None:
        """Count from an earlier offset, even a deleted one: events deleted unread are a loss."""
        begin, outcomes = self._outcomes_of(where)
        if offset < begin:
            others = outcomes.dead.union(outcomes.waiting)
            for span in Offsets.of([(begin, outcomes.base)]).minus(others):
                outcomes.delivered.add(*span)
            outcomes.base = offset
            self._outcomes[where] = (offset, outcomes)

    def _count(self, receipt: Receipt) -> None:
        is_waiting = receipt.outcome is ReceiptOutcome.WAITING
        cause = cause_of(receipt.reason) if is_waiting else ""
        if receipt.outcome is ReceiptOutcome.DEAD:
            cause = self._died_of.enter(receipt)
        self._told_groups = None
        for topic, partition, first, end in receipt.covered:
            _, outcomes = self._outcomes_of(KafkaPartition(topic, partition))
            outcomes.take(
                receipt.outcome, first, end, redrive_count=receipt.redrive_count, cause=cause
            )
            if not is_waiting:
                outcomes.settle()

    def _outcomes_of(self, where: KafkaPartition, first: int = 0) -> tuple[int, OutcomeSets]:
        if where not in self._outcomes:
            self._outcomes[where] = (first, OutcomeSets(first))
        return self._outcomes[where]

    def balance(self, log: Ranges) -> Balance:
        """Return the books over the log's [first, end).

        A lane that never reported a position counts as being at its last outcome.
        """
        over = log, self.reads_archives
        if self._told_balance is None or self._told_balance[0] != over:
            self._told_balance = over, self._balance(log)
        return self._told_balance[1]

    def _balance(self, log: Ranges) -> Balance:
        unconfirmed = self._unconfirmed.offsets()
        total = Balance()
        for where, span in log.items():
            begin, outcomes = self._outcomes_of(where, self._begin(span))
            end = max(begin, span[1])
            position = self._unconfirmed.position(*where)
            gaps = gaps_of(
                outcomes.no_outcome(end),
                unconfirmed=unconfirmed.get(where, Offsets()),
                position=outcomes.end if position is None else position,
                log=with_archives(span, position) if self.reads_archives else span,
            )
            waiting, dead = (
                outcomes.count(each, begin, end)
                for each in (ReceiptOutcome.WAITING, ReceiptOutcome.DEAD)
            )
            total += gaps.balance(end - begin, waiting=waiting, dead=dead)
        return total

    def waiting_by_cause(self) -> dict[str, int]:
        """Return the number of waiting events for each cause."""
        return self._by_cause(ReceiptOutcome.WAITING)

    def dead_groups(self) -> tuple[DeadGroup, ...]:
        """Return the events given up and not sent again since, by reason and answer."""
        if not self._died_of:
            return ()
        if self._told_groups is None:
            self._told_groups = self._died_of.read(self._by_cause(ReceiptOutcome.DEAD))
        return self._told_groups

    def _by_cause(self, outcome: ReceiptOutcome) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for _, outcomes in self._outcomes.values():
            for cause, count in outcomes.by_cause(outcome):
                counts[cause] += count
        return {cause: count for cause, count in sorted(counts.items()) if count}

    def oldest_open(self, log: Ranges) -> Iterator[Origin]:
        """Yield the first event of each Kafka partition that was neither delivered nor dead yet.

        An event that a person has sent again from dead letters is open, but does not count as old.
        """
        for (topic, number), (first, end) in log.items():
            _, outcomes = self._outcomes_of(
                KafkaPartition(topic, number), self._begin((first, end))
            )
            # The base is the offset of the first such event.
            oldest = max(outcomes.base, first)
            if oldest < end:
                yield Origin(topic, number, oldest)
