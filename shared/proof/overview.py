"""The state of every stream and destination at a moment: verdicts, lag, loss, backlog.

Only plain values: the audit and the sampler of `observe` fill them in, the console, `hifi top` and
the metrics show them. An unknown value is None or CANNOT TELL, never a zero that looks well.
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
    """One word for people, the worst that holds; here the worst comes last.

    It is the same word in the console, in `hifi status` and `hifi top`, in metrics and in alerts.
    Unknown facts may hide the worst, but a fault that is known is certain.
    """

    OK = "OK"
    # A person's will.
    PAUSED = "PAUSED"
    # It takes events, later than it should.
    SLOW = "SLOW"
    # It asks for less, or its owner does: events wait.
    RATE_LIMITED = "RATE-LIMITED"
    CANNOT_TELL = "CANNOT TELL"
    # It rejected everything, so its events wait until it is well or a person resumes it.
    HELD = "HELD"
    # It is down, answers 5xx or not at all: events wait.
    FAILING = "FAILING"
    # It refuses events for good, and they become dead letters; or all of them do.
    REJECTING = "REJECTING"
    DISABLED = "DISABLED"
    STALLED = "STALLED"
    LOSING = "LOSING"


class Stage(Enum):
    """Where an event can be, in the order of its way, and so who can lose it."""

    GATEWAY = "gateway"
    # Stored in Kafka, until delivery reads it.
    QUEUE = "queue"
    DELIVERY = "delivery"
    # In the place of delivery, where it is a pipeline that takes the event.
    PIPELINE = "pipeline"
    # The tier that should hold a waiting event, and the retrier that takes it out.
    RETRY_TIER = "retry tier"
    RETRIER = "retrier"
    DEAD_LETTERS = "dead letters"


class MinuteState(Enum):
    UNCHECKED = "unchecked"
    CHECKED = "checked"
    LOSS = "loss"
    # It should be checked already and is not: something waits, or could not be read.
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
    """How late events come into a stage and out of it, and how long the stage takes itself."""

    stage: Stage
    # Since the time the event says, and since the gateway had the request.
    in_from_event: Quantiles | None = None
    in_from_accepted: Quantiles | None = None
    out_from_event: Quantiles | None = None
    out_from_accepted: Quantiles | None = None
    process: Quantiles | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """One event that somebody lost; the id is empty until it is known, and if nothing names it."""

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
    # None for events whose own time is too wild to belong to a minute.
    minute_ms: int | None
    state: MinuteState
    acked: int
    delivered: int
    waiting: int
    dead: int
    # Its lane has not come to them yet.
    queued: int
    lost: Mapping[Stage, int] = field(default_factory=dict)
    # At most as many as are worth listing; `lost` has the full count.
    missing: tuple[Missing, ...] = ()
    # Why it cannot be told, for people; empty otherwise.
    problem: str = ""
    # When the audit first found a loss in it; 0: it found none.
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
        """The events that a pipeline has made something of."""
        return self.delivered - sum(self.not_passed.values())

    @property
    def lost_part(self) -> float:
        """The lost part of the acknowledged events, from 0 to 1."""
        return self.lost_count / self.acked if self.acked else 0.0


@dataclass(frozen=True, slots=True)
class OverdueMinutes:
    """Minutes of a destination that should be checked and are not, however old."""

    minute_count: int = 0
    # The oldest of them, and why it cannot be told. None if their events' times are implausible.
    oldest_ms: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RecentOutcomes:
    """The outcomes of events in the last minutes; one that waits again counts each time."""

    delivered: int = 0
    # For good.
    refused: int = 0
    # Without an answer, or with one that promises better.
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
    # The newest that were not taken, the newest first, however old.
    refused: tuple[RefusedRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, with why in a sentence; nothing where all is well."""

    verdict: StreamVerdict
    reason: str = ""
    # The same in one of few words, such as `status_503`, for metrics and alerts.
    cause: str = ""


@dataclass(frozen=True, slots=True)
class DestinationView:
    """All that is known of one destination now."""

    stream: str
    name: str
    destination_id: str
    verdict: StreamVerdict
    # Why the verdict is not OK, in one sentence.
    reason: str
    balance: Balance
    # In the order of the way; the means of their `process` add up to the end-to-end mean.
    stages: tuple[StageLag, ...]
    # For events delivered in the last minutes: since their own time, since the gateway had them.
    end_to_end: Quantiles | None
    since_accepted: Quantiles | None
    backlog_events: int
    # Estimated by the mean size of the stream's latest events.
    backlog_bytes: int
    oldest_age_s: float | None
    # How long the lane has given no sign although there is work; 0 when there is none.
    silent_s: float
    # Events that wait for a retry, by cause: parked, rate-limited, breaker open, failed attempt.
    waiting_by_cause: Mapping[str, int]
    # The minutes of the last hour, and those whose loss was found in it; newest first, `None`
    # minutes (wild event times) last.
    minutes: tuple[MinuteBooks, ...] = ()
    # However old.
    overdue: OverdueMinutes = OverdueMinutes()
    cause: str = ""
    lately: RecentOutcomes = RecentOutcomes()
    last_refusal: LastAnswer | None = None
    # 0: nothing was ever taken.
    last_ok_at_ms: int = 0
    # Taken in the last minute.
    delivered_per_s: float = 0.0
    answers: Answers = Answers()
    dead_groups: tuple[DeadGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamView:
    """The worst of a stream's destinations, and what the gateway says of it."""

    name: str
    verdict: StreamVerdict
    reason: str
    # Acknowledged in the last minute, by the gateway's own ledger.
    events_per_s: float
    # How late events come to us: since their own time.
    ingest: Quantiles | None
    destinations: tuple[DestinationView, ...]
    # How many events its log holds.
    acked: int = 0
    # In its Kafka partitions, of the last minutes; None while too few came.
    spread: SpreadView | None = None
    # When the newest event since the observer's start was acknowledged; 0: none was.
    last_accepted_at_ms: int = 0
    restored: RestoredView = NOT_RESTORED


@dataclass(frozen=True, slots=True)
class RemovedView:
    """The outcomes of the events that a destination had come to when it was removed."""

    stream: str
    name: str
    removed_at_ms: int
    balance: Balance
    dead_groups: tuple[DeadGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltAnew:
    """A pipeline that is being built to take another's place, and how many events it is behind."""

    generation: int
    standing: str
    why: str = ""
    behind: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline, in its stream's books; delivered is what it has passed on, or should not."""

    stream: str
    name: str
    balance: Balance
    # As a destination is shown, under the name that it has there; None where only books are kept.
    lane: DestinationView | None = None
    # How its document stands (checking, running, refused), why, and where in it that is.
    standing: str = ""
    why: str = ""
    pointer: str = ""
    # Events per second of the last minute, by their outcomes.
    rates: Mapping[str, float] = field(default_factory=dict)
    # Open windows, or keys that are known, and the memory that they take; None if it keeps nothing.
    kept: int | None = None
    kept_bytes: int = 0
    # How many offsets Kafka had deleted before it came to them, and which these were last.
    lost: int = 0
    lost_last: str = ""
    # How often it has ended the executor that works on events, and when last.
    executors_ended: int = 0
    executor_ended_at_ms: int = 0
    built: BuiltAnew | None = None

    @property
    def events_per_s(self) -> float:
        """The rate of the events that it has come to."""
        return sum(self.rates.values())


@dataclass(frozen=True, slots=True)
class UnknownView:
    """Events that wait for a destination that no record names, and that nobody has removed.

    A newer release may have made it, or its record cannot be read here.
    """

    stream: str
    name: str
    waiting_events: int


@dataclass(frozen=True, slots=True)
class AuditHealth:
    """Whether the audit itself can be believed."""

    # None while it has never finished a run.
    last_run_ms: int | None = None
    last_run_took_s: float = 0.0
    # How far the newest checked minute lies behind the newest one that should be checked.
    behind_s: float = 0.0
    problem: str = "the audit has not finished its first run"
    # Records of the last day that it could not read, which prove nothing of any event.
    unreadable_count: int = 0
    # Another observer runs it, and knows more.
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    at_ms: int
    streams: tuple[StreamView, ...]
    audit: AuditHealth
    # Why the sampler's figures may be old; empty while it reads on.
    problem: str = ""
    # Destinations that were removed; their streams may be there still.
    removed: tuple[RemovedView, ...] = ()
    # Destinations that are unknown here, and for which events wait.
    unknown: tuple[UnknownView, ...] = ()
    pipelines: tuple[PipelineView, ...] = ()

    @property
    def removed_acked(self) -> int:
        """Acknowledged events of streams that are there no more, each once."""
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
        """Pipelines, as destinations are shown."""
        return [view.lane for view in self.pipelines if view.lane is not None]

    @property
    def takers(self) -> list[DestinationView]:
        """All that take events of a stream: destinations and pipelines."""
        return [*self.destinations, *self.lanes]


SEVERITY = tuple(StreamVerdict)


def worst(verdicts: Iterable[StreamVerdict]) -> StreamVerdict:
    """The verdict of the whole; OK if there are none."""
    return max(verdicts, key=SEVERITY.index, default=StreamVerdict.OK)
