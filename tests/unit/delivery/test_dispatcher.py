"""The dispatcher's fast path: the same outcomes and the same final flow as the slow one."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from delivery import dispatcher as dispatching
from delivery import flow_store, settling
from delivery.batches import Batch, TriedEvent, tried_batches
from delivery.courier import Exchange, RequestResult
from delivery.dispatcher import Dispatcher
from delivery.flow_store import Calm, FlowStore, Permits
from delivery.settling import Settlement
from shared.config.destination import Destination
from shared.event.record import RecordOut
from shared.flow.flow import Flow, SendLimits
from shared.retry.attempt import Attempt, Failure, NoResponse, Response, classify
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.deliver_runs import new_folder
from tests.support.suite.samples import NOW_MS, a_history, an_envelope
from tests.support.suite.virtual_time import VirtualTime

# One request at a time: with several, the event loop would decide which ends first.
TO = Destination("orders", "shop", "https://shop.example/in", batch_count_max=3, parallel_max=1)
# Local retries do not wait, to keep the test fast.
SCHEDULE = RetrySchedule(local_delays_s=(0.0, 0.0))
LIMITS = SendLimits(TO, SCHEDULE)

attempts: st.SearchStrategy[Attempt] = st.sampled_from(
    [
        *[Response(200)] * 6,
        Response(204),
        Response(400),
        Response(410),
        Response(503),
        NoResponse(Failure.CONNECT_REFUSED),
        NoResponse(Failure.SECRET_UNAVAILABLE),
    ]
)


@dataclass
class FakeCourier:
    """A courier that answers each request with the next attempt of a script."""

    script: Sequence[Attempt]
    request_count: int = 0

    async def attempt(
        self, destination: Destination, batch: Batch, *, earlier_tries: int
    ) -> RequestResult:
        assert earlier_tries <= 2, "more tries than are allowed in place"
        attempt = self.script[self.request_count % len(self.script)]
        self.request_count += 1
        name = f"msg_{batch.facts.covered[0].first}"
        verdict = classify(attempt, retry_on=destination.retry_on)
        exchange = Exchange(name, NOW_MS, NOW_MS)
        return RequestResult(attempt, verdict, {}, exchange, latency_ms=1.0, waited_ms=1.0)


def drained(
    script: Sequence[Attempt], sizes: Sequence[int], *, calm_s: float
) -> tuple[list[RecordOut], int, Flow]:
    """Return the rows, request count and flow after a real-time task with these groups."""
    courier, clock = FakeCourier(script), VirtualTime()
    store = FlowStore(new_folder())
    with clock.seen_by(dispatching, flow_store, settling):
        dispatcher = Dispatcher(
            courier,  # type: ignore[arg-type]  # it has what a dispatcher asks for
            Permits("task", store, LIMITS, Calm(calm_s)),
            Settlement(TO, SCHEDULE, lambda: NOW_MS, None),
            random.Random(7),
        )
        rows: list[RecordOut] = []
        first = 0
        for size in sizes:
            numbers = range(first, first + size)
            events = [TriedEvent(an_envelope(offset), a_history()) for offset in numbers]
            first += size
            # Longer than all of this takes, and shorter than a breaker stays open.
            box_end_s = clock.now_s + 20
            batches = [tried_batches(events, TO)]
            rows += clock.run(dispatcher.drain(batches, box_end_s=box_end_s))
        dispatcher.permits.leave()
    with store.lock(LIMITS, now_ms=NOW_MS) as locked:
        return rows, courier.request_count, locked.flow


@given(
    st.lists(attempts, min_size=1, max_size=12),
    st.lists(st.integers(1, 7), min_size=1, max_size=12),
)
def test_a_turn_without_a_look_leaves_what_one_with_a_look_leaves(
    script: list[Attempt], sizes: list[int]
) -> None:
    rows, request_count, flow = drained(script, sizes, calm_s=0.0)
    quick_rows, quick_request_count, quick_flow = drained(script, sizes, calm_s=60.0)
    assert quick_request_count == request_count
    assert [(row.topic, row.key, row.value) for row in quick_rows] == [
        (row.topic, row.key, row.value) for row in rows
    ]
    assert quick_flow.attempts == flow.attempts
    assert quick_flow.parks == flow.parks
    assert quick_flow.breaker.state is flow.breaker.state
    assert quick_flow.failures_in_row == flow.failures_in_row
    assert quick_flow.retry_tokens == flow.retry_tokens
    assert quick_flow.tasks == flow.tasks == {}
