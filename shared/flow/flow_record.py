"""Writes down what is known of a destination: in a file, and in the state topic.

One JSON object for both. Its first members are for people and for the console; `flow` is what a
worker goes on from after a restart. What cannot be read is nothing: a destination then starts
anew, which is always safe, only slower.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from shared.flow.breaker import Breaker, BreakerState, Step
from shared.flow.concurrency import Concurrency, Window
from shared.flow.flow import Flow, FlowState, MinuteOfRequests, SendLimits, resumed, state_of
from shared.flow.rate_gate import RateGate

# How often a flow that changes is published while its state stays the same.
PUBLISH_EVERY_MS = 1_000


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A flow with its state as people see it, and when either last changed or was told."""

    flow: Flow
    # Which file it is of: each machine has its own, and counts for itself.
    store: str = ""
    state: FlowState = FlowState.CLOSED
    since_ms: int = 0
    updated_at_ms: int = 0
    published_at_ms: int = 0

    @property
    def until_ms(self) -> int:
        """When the next request may go, as far as that is known; 0 if it may now."""
        match self.state:
            case FlowState.THROTTLED:
                return self.flow.gate.closed_until_ms
            case FlowState.OPEN | FlowState.HALF_OPEN | FlowState.HELD:
                return self.flow.breaker.until_ms
            case FlowState.CLOSED | FlowState.DISABLED:
                return 0
            case _:
                assert_never(self.state)

    def with_flow(self, flow: Flow, *, now_ms: int) -> "FlowRecord":
        """The record after the flow has changed."""
        state = state_of(flow, now_ms=now_ms)
        since_ms = self.since_ms if state is self.state else now_ms
        return replace(self, flow=flow, state=state, since_ms=since_ms, updated_at_ms=now_ms)

    def is_to_publish(self, *, now_ms: int) -> bool:
        """Whether others should hear of it: at each change of state, else once a second."""
        if self.since_ms > self.published_at_ms:
            return True
        is_news = self.updated_at_ms > self.published_at_ms
        return is_news and now_ms - self.published_at_ms >= PUBLISH_EVERY_MS

    def to_json(self) -> bytes:
        fields = {
            "state": self.state.value,
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "limit": self.flow.concurrency.limit,
            "store": self.store,
            "updated_at_ms": self.updated_at_ms,
            "published_at_ms": self.published_at_ms,
            "flow": _flow_fields(self.flow),
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def open_flow_record(value: bytes | None) -> FlowRecord | None:
    """Read a record; None if there is none, or none that can be understood."""
    try:
        fields = json.loads(value or b"null")
        return FlowRecord(
            flow=_open_flow(fields["flow"]),
            store=str(fields["store"]),
            state=FlowState(fields["state"]),
            since_ms=int(fields["since_ms"]),
            updated_at_ms=int(fields["updated_at_ms"]),
            published_at_ms=int(fields["published_at_ms"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def going_on(
    kept: FlowRecord | None,
    published: FlowRecord | None,
    limits: SendLimits,
    *,
    store: str,
    now_ms: int,
) -> FlowRecord:
    """What to go on from: our own record, or a later one of another machine's.

    `store` is the name that a new record gets. A person's word to try again comes before both.
    """
    record = kept or FlowRecord(Flow(), store=store)
    if published is not None and published.updated_at_ms > record.updated_at_ms:
        # What it counted, and who sends there, is the other machine's.
        ours = record.flow
        flow = replace(published.flow, attempts=ours.attempts, parks=ours.parks, tasks=ours.tasks)
        record = replace(published, flow=flow, store=record.store)
    flow = resumed(record.flow, limits)
    return record if flow is record.flow else record.with_flow(flow, now_ms=now_ms)


def _flow_fields(flow: Flow) -> dict[str, Any]:
    concurrency, gate, breaker = flow.concurrency, flow.gate, flow.breaker
    window = concurrency.window
    return {
        "limit": concurrency.limit,
        "doubling_max": concurrency.doubling_max,
        "usual_ms": dict(concurrency.usual_ms),
        "mean_ms": concurrency.mean_ms,
        "variance": concurrency.variance,
        "window": [
            window.started_at_ms,
            window.request_count,
            window.congested_count,
            window.was_full,
            dict(window.answers),
        ],
        "gate": [getattr(gate, name) for name in RateGate.__slots__],
        "breaker": [
            breaker.state.value,
            breaker.failures_in_row,
            [[s.started_at_ms, s.request_count, s.failed_count] for s in breaker.steps],
            breaker.open_count,
            breaker.until_ms,
            breaker.probe_until_ms,
            breaker.successes,
            breaker.closed_at_ms,
        ],
        "retry_tokens": flow.retry_tokens,
        "last_ok_at_ms": flow.last_ok_at_ms,
        "failing_since_ms": flow.failing_since_ms,
        "failures_in_row": flow.failures_in_row,
        "rejects_in_row": flow.rejects_in_row,
        "minutes": [[m.started_at_ms, m.request_count, m.rejected_count] for m in flow.minutes],
        "held_at_ms": flow.held_at_ms,
        "disabled_at_ms": flow.disabled_at_ms,
        "attempts": dict(flow.attempts),
        "parks": dict(flow.parks),
        "tasks": dict(flow.tasks),
    }


def _open_flow(fields: Mapping[str, Any]) -> Flow:
    started_at_ms, requests, congested, was_full, answers = fields["window"]
    state, in_row, steps, *rest = fields["breaker"]
    doubling_max = fields["doubling_max"]
    return Flow(
        concurrency=Concurrency(
            limit=int(fields["limit"]),
            doubling_max=None if doubling_max is None else int(doubling_max),
            usual_ms={int(size): float(ms) for size, ms in fields["usual_ms"].items()},
            mean_ms=float(fields["mean_ms"]),
            variance=float(fields["variance"]),
            window=Window(
                started_at_ms=int(started_at_ms),
                request_count=int(requests),
                congested_count=int(congested),
                was_full=bool(was_full),
                answers={
                    int(size): (int(count), float(sum_ms))
                    for size, (count, sum_ms) in answers.items()
                },
            ),
        ),
        gate=RateGate(*fields["gate"]),
        breaker=Breaker(
            BreakerState(state), int(in_row), tuple(Step(*step) for step in steps), *rest
        ),
        retry_tokens=float(fields["retry_tokens"]),
        last_ok_at_ms=int(fields["last_ok_at_ms"]),
        failing_since_ms=int(fields["failing_since_ms"]),
        failures_in_row=int(fields["failures_in_row"]),
        rejects_in_row=int(fields["rejects_in_row"]),
        minutes=tuple(MinuteOfRequests(*minute) for minute in fields["minutes"]),
        held_at_ms=int(fields["held_at_ms"]),
        disabled_at_ms=int(fields["disabled_at_ms"]),
        attempts={str(name): int(count) for name, count in fields["attempts"].items()},
        parks={str(name): int(count) for name, count in fields["parks"].items()},
        tasks={str(name): int(until) for name, until in fields["tasks"].items()},
    )
