"""Writes the state of a destination as one JSON object, for its file and for the state topic.

Its first members are for people and for the console; `flow` is the part that a worker goes on from
after a restart. An unreadable record counts as none: the destination then starts from scratch,
which is always safe, only slower.
"""

from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

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
# Between two of its tasks a machine is still there.
_BETWEEN_MS = 2_000
# A record heard this late counts as heard at once; clocks differ by no more than this.
_AT_ONCE_MS = 250
_CLOCKS_DIFFER_MS = 2_000
# Members that older versions do not write.
_ADDED = (Neighbours, ChangeCounts, Blocking, BatchSize)


def store_name(token: str, *, now_ms: int) -> str:
    """The name of a new file: nobody else's, and with the time from which it counts."""
    return f"{token}-{now_ms}"


class FlowRecord(Struct, frozen=True):
    """A flow with its state as people see it, and when it last changed and was published."""

    flow: Flow
    # The name of its file: each machine has its own, and counts for itself.
    store: str = ""
    state: FlowState = FlowState.CLOSED
    since_ms: int = 0
    updated_at_ms: int = 0
    published_at_ms: int = 0
    # It has changed in a way that others should hear of now: the next event may be hours away.
    is_news: bool = False

    @property
    def counts_since_ms(self) -> int:
        """When its file was made; 0 if its name does not say."""
        begun = self.store.partition("-")[2]
        return int(begun) if begun.isdecimal() else 0

    @property
    def until_ms(self) -> int:
        """When the next request may go, as far as that is known; 0 if it may now."""
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
        """Whether it is disabled, or shut again and again without a delivery for `after_s`.

        A destination that often asks for a short wait, and takes events in between, is not meant.
        Nor does the moment count in which its gate opens for the next request.
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
        """The record after others have told what they know: nobody need hear of that."""
        state = state_of(flow, now_ms=now_ms)
        since_ms = self.since_ms if state is self.state else now_ms
        return replace(self, flow=flow, state=state, since_ms=since_ms)

    def published(self, *, now_ms: int) -> "FlowRecord":
        """The record once others have heard of it."""
        neighbours = replace(self.flow.neighbours, mine=self.of_us(now_ms=now_ms))
        flow = replace(self.flow, neighbours=neighbours)
        return replace(self, flow=flow, published_at_ms=now_ms, is_news=False)

    def of_us(self, *, now_ms: int) -> StoreNews:
        """The news for other machines of how this one sends."""
        flow = self.flow
        was_here = now_ms - flow.neighbours.most_at_ms < _BETWEEN_MS
        is_here = was_here or is_sent_to(flow.tasks, now_ms=now_ms)
        count = running_count(flow.tasks)
        return news_of(flow.neighbours, running=count, is_here=is_here, now_ms=now_ms)

    def is_to_publish(self, *, now_ms: int, every_ms: int = PUBLISH_EVERY_MS) -> bool:
        """Whether others should hear of it: at each change of fate, else every `every_ms`."""
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
    """Whether it is slow, or takes nothing, and why: these count beside the state."""
    refusal = flow.last_refusal.reason if flow.last_refusal else ""
    return flow.failing_since_ms > 0, flow.is_slow, refusal, flow.blocking


def open_flow_record(value: bytes | None) -> FlowRecord | None:
    """Read a record; None if there is none, or if it cannot be understood."""
    try:
        return msgspec.convert(_DECODER.decode(value or b""), FlowRecord, from_attributes=True)
    except (ValueError, RecursionError):
        return None


def _without_defaults(kind: type[Struct]) -> type[Struct]:
    """The same members, all required: a missing one must not pass for its value at the start."""
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
    """The record to go on from: our own, with what other machines know better.

    `store` is the name that a new record gets. A person's word to try again comes before both.
    """
    record = kept or FlowRecord(Flow(), store=store)
    if published is not None and _says_more(published, record):
        record = _with_news(record, published, now_ms=now_ms)
    flow = resumed(record.flow, limits)
    return record if flow is record.flow else record.with_flow(flow, now_ms=now_ms)


def _says_more(published: FlowRecord, record: FlowRecord) -> bool:
    """Whether it says more than ours; mostly it is our own news."""
    is_theirs = published.store != record.store or bool(published.flow.neighbours.others)
    return is_theirs or published.updated_at_ms > record.updated_at_ms


def _with_news(record: FlowRecord, published: FlowRecord, *, now_ms: int) -> FlowRecord:
    ours, theirs = record.flow, published.flow
    is_later = published.updated_at_ms > record.updated_at_ms
    if is_later and not is_sent_to(ours.tasks, now_ms=now_ms):
        # Its counts and its tasks are those of the other machine.
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

    Its times follow another clock, and are set right by its apparent age, if it is new.
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
