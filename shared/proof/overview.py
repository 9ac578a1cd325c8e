"""The state of every stream and destination at one time: verdicts, lag, loss, backlog.

These are plain values: the audit and the sampler of `observe` set them; the console, `hifi top` and
the metrics show them. An unknown value is None or CANNOT TELL, never a zero that looks healthy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from shared.event.spread import SpreadView
from shared.proof.balance import Balance
from shared.proof.last_answer import DeadGroup, FailedTry, LastAnswer
from shared.proof.log_buckets import LogBuckets
from shared.proof.restored import NOT_RESTORED, RestoredView


class StreamVerdict(Enum):
    """One word for people: the worst that applies; in this list the worst comes last.

    It is the same word in the console, in `hifi status` and `hifi top`, in metrics and in alerts.
    Unknown facts may hide a worse one, but a known fault is certain.
    """

    OK = "OK"
    # A person has paused it.
    PAUSED = "PAUSED"
    # It takes events, but later than it should.
    SLOW = "SLOW"
    # The destination, or its owner, asks for less: events wait.
    RATE_LIMITED = "RATE-LIMITED"
    CANNOT_TELL = "CANNOT TELL"
    # It rejected everything, so its events wait until it recovers or a person resumes it.
    HELD = "HELD"
    # It is down, answers 5xx or not at all: events wait.
    FAILING = "FAILING"
    # It refuses some or all events for good: they become dead letters.
    REJECTING = "REJECTING"
    DISABLED = "DISABLED"
    STALLED = "STALLED"
    LOSING = "LOSING"


class Stage(Enum):
    """The places where an event can be, and be lost, in the order in which it passes them."""

    GATEWAY = "gateway"
    # Stored in Kafka, until delivery reads it.
    QUEUE = "queue"
    DELIVERY = "delivery"
    # The stage that replaces delivery for an event that a pipeline takes.
    PIPELINE = "pipeline"
    # The tier that should hold a waiting event, and the retrier that takes it out.
    RETRY_TIER = "retry tier"
    RETRIER = "retrier"
    DEAD_LETTERS = "dead letters"


class MinuteState(Enum):
    UNCHECKED = "unchecked"
    CHECKED = "checked"
    LOSS = "loss"
    # It should already have been checked, but was not: something waits, or could not be read.
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Durations of many events; the mean is exact, and means of successive steps add up."""

    count: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, buckets: LogBuckets) -> "Quantiles | None":
        if not buckets.counts:
            return None
        return cls(buckets.count, buckets.mean_ms, *map(buckets.quantile, (0.50, 0.95, 0.99)))


@dataclass(frozen=True, slots=True)
class StageLag:
    """How late events enter and leave a stage, and how long the stage itself takes."""

    stage: Stage
    # Since the event's own time, and since the gateway received the request.
    in_from_event: Quantiles | None = None
    in_from_accepted: Quantiles | None = None
    out_from_event: Quantiles | None = None
    out_from_accepted: Quantiles | None = None
    process: Quantiles | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """One lost event; the id is empty while it is unknown, or if nothing names it."""

    event_id: str
    stage: Stage
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class MinuteBooks:
    """One event-time minute of one destination: acked = delivered + waiting + dead + ... + lost."""

    stream: str
    destination_id: str
    # None for events whose own time is too implausible for a minute.
    minute_ms: int | None
    state: MinuteState
    acked: int
    delivered: int
    waiting: int
    dead: int
    # Its lane has not reached them yet.
    queued: int
    lost: Mapping[Stage, int] = field(default_factory=dict)
    # The lost events that are worth listing; `lost` has the full count.
    missing: tuple[Missing, ...] = ()
    # Why the verdict is CANNOT TELL, for people; empty otherwise.
    problem: str = ""
    # When the audit first found a loss in the minute; 0: it found none.
    told_at_ms: int = 0
    # For a pipeline: delivered events that it did not pass on, by outcome (filtered, and so on).
    not_passed: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int | None]:
        """The destination, and its minute."""
        return self.destination_id, self.minute_ms

    @property
    def lost_count(self) -> int:
        return sum(self.lost.values())

    @property
    def passed(self) -> int:
        """The events of which a pipeline made results."""
        return self.delivered - sum(self.not_passed.values())

    @property
    def lost_part(self) -> float:
        """The lost fraction of the acknowledged events, from 0 to 1."""
        return self.lost_count / self.acked if self.acked else 0.0


@dataclass(frozen=True, slots=True)
class OverdueMinutes:
    """Minutes of a destination that should be checked but are not, however old."""

    minute_count: int = 0
    # The oldest of them, and why it is not checked. None if their events' times are implausible.
    oldest_ms: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RecentOutcomes:
    """The outcomes of events in the last minutes; an event that waits again counts each time."""

    delivered: int = 0
    # Events that are never tried again.
    refused: int = 0
    # Events that got no answer, or one that allows another attempt.
    failed: int = 0
    rate_limited: int = 0

    @property
    def total(self) -> int:
        return self.delivered + self.refused + self.failed + self.rate_limited


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that was not taken, and the number of its events."""

    batch_id: str
    event_count: int
    failed: FailedTry


@dataclass(frozen=True, slots=True)
class Answers:
    """A destination's answers to its requests in the last minutes."""

    # How many requests had each result: status_200, status_503, connect_refused.
    counts: Mapping[str, int] = field(default_factory=dict)
    # The latest requests that were not taken, newest first, however old.
    refused: tuple[RefusedRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and its reason in a sentence; without trouble, no reason."""

    verdict: StreamVerdict
    reason: str = ""
    # The same as one of a few words, such as `status_503`, for metrics and alerts.
    cause: str = ""


@dataclass(frozen=True, slots=True)
class DestinationView:
    """All that is known about one destination now."""

    stream: str
    name: str
    destination_id: str
    verdict: StreamVerdict
    # Why the verdict is not OK, in one sentence.
    reason: str
    balance: Balance
    # In the order in which events pass; the means of `process` add up to the end-to-end mean.
    stages: tuple[StageLag, ...]
    # For events delivered in the last minutes: since their own time, and since acceptance.
    end_to_end: Quantiles | None
    since_accepted: Quantiles | None
    backlog_events: int
    # Estimated by the mean size of the stream's latest events.
    backlog_bytes: int
    oldest_age_s: float | None
    # How long the lane has made no progress although there is work; 0 without work.
    silent_s: float
    # Events that wait for a retry, by cause: parked, rate-limited, breaker open, failed attempt.
    waiting_by_cause: Mapping[str, int]
    # The minutes of the last hour, and those whose loss was found in it; newest first, `None`
    # minutes (implausible event times) last.
    minutes: tuple[MinuteBooks, ...] = ()
    # However old.
    overdue: OverdueMinutes = OverdueMinutes()
    cause: str = ""
    lately: RecentOutcomes = RecentOutcomes()
    last_refusal: LastAnswer | None = None
    # 0: it has never taken an event.
    last_ok_at_ms: int = 0
    # Its rate over the last minute.
    delivered_per_s: float = 0.0
    answers: Answers = Answers()
    dead_groups: tuple[DeadGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamView:
    """The worst of a stream's destinations, and the gateway's figures of the stream."""

    name: str
    verdict: StreamVerdict
    reason: str
    # Acknowledged in the last minute, by the gateway's own ledger.
    events_per_s: float
    # How late events arrive: since their own time.
    ingest: Quantiles | None
    destinations: tuple[DestinationView, ...]
    # How many events its log has.
    acked: int = 0
    # How recent events spread over its Kafka partitions; None while there are too few.
    spread: SpreadView | None = None
    # When the newest event since the observer's start was acknowledged; 0: none was.
    last_accepted_at_ms: int = 0
    restored: RestoredView = NOT_RESTORED


@dataclass(frozen=True, slots=True)
class RemovedView:
    """A removed destination, with the outcomes of events up to the position that it had reached."""

    stream: str
    name: str
    removed_at_ms: int
    balance: Balance
    dead_groups: tuple[DeadGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltAnew:
    """A pipeline that is being built to replace another, and how many events it is behind."""

    generation: int
    standing: str
    why: str = ""
    behind: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline, in its stream's books; events passed on or rightly dropped are delivered."""

    stream: str
    name: str
    balance: Balance
    # Its view as a destination, under its name among those; None where only books are kept.
    lane: DestinationView | None = None
    # The state of its document (checking, running, refused), the reason, and the place in it.
    standing: str = ""
    why: str = ""
    pointer: str = ""
    # Events per second of the last minute, by their outcomes.
    rates: Mapping[str, float] = field(default_factory=dict)
    # Open windows or known keys, and the memory that they take; None if it keeps nothing.
    kept: int | None = None
    kept_bytes: int = 0
    # How many offsets Kafka had deleted before it read them, and the latest of these.
    lost: int = 0
    lost_last: str = ""
    # How often it has ended the executor that processes events, and when last.
    executors_ended: int = 0
    executor_ended_at_ms: int = 0
    built: BuiltAnew | None = None

    @property
    def events_per_s(self) -> float:
        """The rate of the events that it has read."""
        return sum(self.rates.values())


@dataclass(frozen=True, slots=True)
class UnknownView:
    """Events that wait for a destination that is neither configured nor removed.

    A newer release may have made it, or its record cannot be read here.
    """

    stream: str
    name: str
    waiting_events: int


@dataclass(frozen=True, slots=True)
class AuditHealth:
    """Whether the audit itself can be trusted."""

    # None while it has never finished a run.
    last_run_ms: int | None = None
    last_run_took_s: float = 0.0
    # How far the newest checked minute is behind the newest one that should be checked.
    behind_s: float = 0.0
    problem: str = "the audit has not finished its first run"
    # Records of the last day that it could not read, which prove nothing about any event.
    unreadable_count: int = 0
    # Whether another observer runs it, and knows more.
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    at_ms: int
    streams: tuple[StreamView, ...]
    audit: AuditHealth
    # Why the sampler's figures may be old; empty while it works.
    problem: str = ""
    # Destinations that were removed; their streams may still exist.
    removed: tuple[RemovedView, ...] = ()
    # Destinations that are unknown here, and for which events wait.
    unknown: tuple[UnknownView, ...] = ()
    pipelines: tuple[PipelineView, ...] = ()

    @property
    def removed_acked(self) -> int:
        """Acknowledged events of streams that no longer exist, each once."""
        there = {stream.name for stream in self.streams}
        acked: dict[str, int] = {}
        for view in self.removed:
            if view.stream not in there:
                acked[view.stream] = max(acked.get(view.stream, 0), view.balance.acked)
        return sum(acked.values())

    @property
    def verdict(self) -> StreamVerdict:
        """The worst of all streams and pipelines."""
        streams = (stream.verdict for stream in self.streams)
        return worst([*streams, *(lane.verdict for lane in self.lanes)])

    @property
    def destinations(self) -> list[DestinationView]:
        """The destinations of all streams."""
        return [view for stream in self.streams for view in stream.destinations]

    @property
    def lanes(self) -> list[DestinationView]:
        """The pipelines' views as destinations."""
        return [view.lane for view in self.pipelines if view.lane is not None]

    @property
    def takers(self) -> list[DestinationView]:
        """All destinations and pipelines, which take events of streams."""
        return [*self.destinations, *self.lanes]


SEVERITY = tuple(StreamVerdict)


def worst(verdicts: Iterable[StreamVerdict]) -> StreamVerdict:
    """The worst of these verdicts; OK if there are none."""
    return max(verdicts, key=SEVERITY.index, default=StreamVerdict.OK)
