"""Writes the state of a destination as one JSON object, for its file and for the state topic.

Its first members are for people and for the console; `flow` is the part from which a worker
continues after a restart. An unreadable record counts as none: the destination then starts from
scratch, which is always safe, only slower.
"""

from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from shared.config.destination import Destination
from shared.flow.batch_size import BatchSize
from shared.flow.breaker import BreakerState
from shared.flow.flow import Blocking, ChangeCounts, Flow, FlowState, SendLimits, state_of
from shared.flow.learning import counted, learned, shifted
from shared.flow.neighbours import (
    STALE_MS,
    Neighbours,
    StoreNews,
    heard,
    is_to_tell,
    news_of,
)
from shared.flow.resuming import resumed
from shared.flow.sharing import is_sent_to, running_count

# How often a flow that changes is published while its state stays the same.
PUBLISH_EVERY_MS = 1_000
# Between two of its tasks, a machine still counts as sending for this long.
_BETWEEN_MS = 2_000
# A record that is at most this old counts as new; clocks differ by no more than the second time.
_AT_ONCE_MS = 250
_CLOCKS_DIFFER_MS = 2_000
# Members that older versions do not write.
_ADDED = (Neighbours, ChangeCounts, Blocking, BatchSize)


def store_name(token: str, *, now_ms: int) -> str:
    """Return the unique name of a new file, with the time from which it counts."""
    return f"{token}-{now_ms}"


class FlowRecord(Struct, frozen=True):
    """A flow with the state that people see, and when it last changed and was published."""

    flow: Flow
    # The name of its file: each machine has its own, and counts for itself.
    store: str = ""
    state: FlowState = FlowState.CLOSED
    since_ms: int = 0
    updated_at_ms: int = 0
    published_at_ms: int = 0
    # Whether a change must be published now, as the next event may be hours away.
    is_news: bool = False

    @property
    def counts_since_ms(self) -> int:
        """When its file was made, according to its name; 0 if that is missing."""
        begun = self.store.partition("-")[2]
        return int(begun) if begun.isdecimal() else 0

    def is_before(self, to: Destination) -> bool:
        """Whether a person has asked to try the destination since; no clocks are compared."""
        return self.flow.resumed_at_ms < to.resumed_at_ms

    @property
    def until_ms(self) -> int:
        """When the next request may go, as far as that is known; 0 if it may go now."""
        match self.state:
            case FlowState.RATE_LIMITED:
                return self.flow.gate.closed_until_ms
            case FlowState.HELD if self.flow.is_blocked:
                return self.flow.blocking.until_ms
            case FlowState.OPEN | FlowState.HALF_OPEN | FlowState.HELD:
                return self.flow.breaker.until_ms
            case FlowState.CLOSED | FlowState.DISABLED:
                return 0
            case _:
                assert_never(self.state)

    def is_in_lasting_trouble(self, *, now_ms: int, after_s: float) -> bool:
        """Whether it is disabled, or has been shut repeatedly without a delivery for `after_s`.

        A destination that often asks for a short wait, and takes events in between, does not count.
        A destination whose gate has just opened for the next request still counts.
        """
        if self.state is FlowState.DISABLED:
            return True
        flow = self.flow
        is_shut = flow.breaker.state is not BreakerState.CLOSED or flow.gate.limits_in_row > 0
        failing_since_ms = flow.failing_since_ms or now_ms
        return is_shut and now_ms - failing_since_ms > 1000 * after_s

    def with_flow(self, flow: Flow, *, now_ms: int) -> "FlowRecord":
        """The record after the flow has changed."""
        flow = counted(self.flow, flow, now_ms=now_ms)
        state = state_of(flow, now_ms=now_ms)
        since_ms = self.since_ms if state is self.state else now_ms
        is_same = state is self.state and _fate_of(flow) == _fate_of(self.flow)
        return replace(
            self,
            flow=flow,
            state=state,
            since_ms=since_ms,
            updated_at_ms=now_ms,
            is_news=self.is_news or not is_same,
        )

    def hearing(self, flow: Flow, *, now_ms: int) -> "FlowRecord":
        """The record after news from others, which need not be published again."""
        state = state_of(flow, now_ms=now_ms)
        since_ms = self.since_ms if state is self.state else now_ms
        return replace(self, flow=flow, state=state, since_ms=since_ms)

    def published(self, *, now_ms: int) -> "FlowRecord":
        """The record once it is published."""
        neighbours = replace(self.flow.neighbours, mine=self.of_us(now_ms=now_ms))
        flow = replace(self.flow, neighbours=neighbours)
        return replace(self, flow=flow, published_at_ms=now_ms, is_news=False)

    def of_us(self, *, now_ms: int) -> StoreNews:
        """The news for other machines about how this one sends."""
        flow = self.flow
        was_here = now_ms - flow.neighbours.most_at_ms < _BETWEEN_MS
        is_here = was_here or is_sent_to(flow.tasks, now_ms=now_ms)
        count = running_count(flow.tasks)
        return news_of(flow.neighbours, running=count, is_here=is_here, now_ms=now_ms)

    def is_to_publish(self, *, now_ms: int, every_ms: int = PUBLISH_EVERY_MS) -> bool:
        """Whether to publish it: at each change of health, else every `every_ms`."""
        neighbours = self.flow.neighbours
        has_company = bool(neighbours.active)
        if self.is_news or (has_company and is_to_tell(neighbours, self.of_us(now_ms=now_ms))):
            return True
        is_newer = self.updated_at_ms > self.published_at_ms
        return is_newer and now_ms - self.published_at_ms >= every_ms

    def to_json(self) -> bytes:
        members = {
            "state": self.state,
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "limit": self.flow.concurrency.limit,
            "store": self.store,
            "updated_at_ms": self.updated_at_ms,
            "published_at_ms": self.published_at_ms,
            "is_news": self.is_news,
            "flow": self.flow,
        }
        return msgspec.json.encode(members)


def _fate_of(flow: Flow) -> tuple[bool, bool, str, Blocking]:
    """Whether it fails or is slow, why, and what blocks it; a change of these is published."""
    refusal = flow.last_refusal.reason if flow.last_refusal else ""
    return flow.failing_since_ms > 0, flow.is_slow, refusal, flow.blocking


def open_flow_record(value: bytes | None) -> FlowRecord | None:
    """Read a record; None if there is none, or if it cannot be understood."""
    try:
        return msgspec.convert(_DECODER.decode(value or b""), FlowRecord, from_attributes=True)
    except (ValueError, RecursionError):
        return None


def _without_defaults(kind: type[Struct]) -> type[Struct]:
    """Return a type whose members are all required: a missing one must not become its default."""
    members: list[Any] = []
    for member in fields(kind):
        type_ = member.type
        if type_ in _ADDED:
            members.append((member.name, type_, type_()))
        elif isinstance(type_, type) and issubclass(type_, Struct):
            members.append((member.name, _without_defaults(type_)))
        else:
            members.append((member.name, type_))
    return msgspec.defstruct(kind.__name__, members)


_DECODER = msgspec.json.Decoder(_without_defaults(FlowRecord))


def going_on(
    kept: FlowRecord | None,
    published: FlowRecord | None,
    limits: SendLimits,
    *,
    store: str,
    now_ms: int,
) -> FlowRecord:
    """The record to continue from: our own, updated with newer knowledge of other machines.

    `store` is the name that a new record gets. If a person has resumed the destination, that
    overrides both records.
    """
    record = kept or FlowRecord(Flow(), store=store)
    if published is not None and _says_more(published, record):
        record = _with_news(record, published, now_ms=now_ms)
    flow = resumed(record.flow, limits)
    return record if flow is record.flow else record.with_flow(flow, now_ms=now_ms)


def _says_more(published: FlowRecord, record: FlowRecord) -> bool:
    """Whether the published record has news for ours; usually it is our own."""
    is_theirs = published.store != record.store or bool(published.flow.neighbours.others)
    return is_theirs or published.updated_at_ms > record.updated_at_ms


def _with_news(record: FlowRecord, published: FlowRecord, *, now_ms: int) -> FlowRecord:
    ours, theirs = record.flow, published.flow
    is_later = published.updated_at_ms > record.updated_at_ms
    if is_later and not is_sent_to(ours.tasks, now_ms=now_ms):
        # The published counts and tasks are those of the other machine.
        counts = replace(theirs, attempts=ours.attempts, parks=ours.parks, tasks=ours.tasks)
        flow = learned(replace(counts, neighbours=ours.neighbours), ours, now_ms=now_ms)
        record = replace(published, flow=flow, store=record.store)
    else:
        flow = learned(ours, theirs, now_ms=now_ms)
    news = {**theirs.neighbours.others, published.store: theirs.neighbours.mine}
    neighbours = heard(flow.neighbours, news, me=record.store, now_ms=now_ms)
    if neighbours is not flow.neighbours:
        flow = replace(flow, neighbours=neighbours)
    return record if flow is record.flow else record.hearing(flow, now_ms=now_ms)


def folded(known: FlowRecord | None, told: FlowRecord, *, now_ms: int) -> FlowRecord:
    """The record of a destination after one more store has published its own.

    Its times follow another clock; those of a new record are corrected by its apparent age.
    """
    age_ms = now_ms - told.published_at_ms
    flow = told.flow
    if _AT_ONCE_MS < abs(age_ms) <= _CLOCKS_DIFFER_MS or -_AT_ONCE_MS <= age_ms < 0:
        flow = shifted(flow, age_ms)
    others: dict[str, StoreNews] = {}
    if known is not None:
        flow = learned(flow, known.flow, now_ms=now_ms)
        others = {**known.flow.neighbours.others, known.store: known.flow.neighbours.mine}
        others.pop(told.store, None)
        others = {
            store: each
            for store, each in others.items()
            if abs(told.published_at_ms - each.at_ms) < STALE_MS
        }
    flow = replace(flow, neighbours=replace(flow.neighbours, others=others))
    return told.hearing(flow, now_ms=told.updated_at_ms)
