"""The cost of finding out which events a destination refuses, in virtual time.

The dispatcher, its tracks and the flow are the real ones; the destination answers after a while,
and refuses each request that contains a bad event.
"""

import asyncio
import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import pytest

from delivery import dispatcher as dispatching
from delivery import flow_store, settling
from delivery.batches import Batch, TriedBatch, TriedEvent, tried_batches
from delivery.courier import Exchange, RequestResult
from delivery.dispatcher import Dispatcher
from delivery.flow_store import Calm, FlowStore, Permits
from delivery.settling import Settlement
from shared.config.destination import Destination
from shared.event.envelope import MalformedRecord, open_retry_record
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import DEAD, retry_topic
from shared.flow.flow import SendLimits
from shared.proof.receipt import ReceiptOutcome
from shared.retry.attempt import Response, classify
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.deliver_runs import covered, new_folder
from tests.support.suite.samples import NOW_MS, a_history, an_envelope
from tests.support.suite.virtual_time import VirtualTime

COUNT = 20_000
SCHEDULE = RetrySchedule()
TO = Destination("orders", "shop", "https://shop.example/in", parallel_max=32)


@dataclass
class Refuser:
    """A destination that answers after a while, and refuses requests with a bad event."""

    bad: Collection[int] = ()
    answer_s: float = 1.0
    # Requests with more events than this are refused, too, with this status.
    count_max: int = 10**9
    status: int = 422
    sizes: list[int] = field(default_factory=list)
    refused_alone: list[int] = field(default_factory=list)
    patience_s: float | None = None

    async def attempt(self, _: Destination, batch: Batch, *, earlier_tries: int) -> RequestResult:
        assert not earlier_tries, "no event is retried in place here"
        offsets = [tried.envelope.origin.offset for tried in batch.tried()]
        self.sizes.append(len(offsets))
        await asyncio.sleep(self.answer_s)
        is_bad = any(offset in self.bad for offset in offsets)
        if is_bad and len(offsets) == 1:
            self.refused_alone += offsets
        status = self.status if len(offsets) > self.count_max else 422 if is_bad else 200
        attempt, at_ms = Response(status), NOW_MS
        verdict, name = classify(attempt), f"msg_{offsets[0]}_{len(offsets)}"
        latency_ms = 1000 * self.answer_s
        return RequestResult(
            attempt, verdict, {}, Exchange(name, at_ms, at_ms), latency_ms, latency_ms
        )


@dataclass
class Lane:
    """A lane that sends to the destination in rounds, each until its time box is over."""

    server: Refuser
    to: Destination = TO
    # A round has no end, like the retrier's for slow destinations.
    box_s: float = math.inf
    rounds: float = 0.0
    clock: VirtualTime = field(default_factory=VirtualTime)
    store: FlowStore = field(default_factory=lambda: FlowStore(new_folder()))

    def round(self, tried: Sequence[TriedEvent]) -> list[RecordOut]:
        with self.clock.seen_by(dispatching, flow_store, settling):
            limits = SendLimits(self.to, SCHEDULE)
            dispatcher = Dispatcher(
                self.server,  # type: ignore[arg-type]  # it has what a dispatcher asks for
                Permits("task", self.store, limits, Calm()),
                Settlement(self.to, SCHEDULE, self.clock.now_ms, None),
                random.Random(7),
                rounds=self.rounds,
            )
            box_end_s = self.clock.now_s + self.box_s
            drain = dispatcher.drain([tried_batches(tried, self.to)], box_end_s=box_end_s)
            rows = self.clock.run(drain)
            dispatcher.permits.leave()
        return rows


def events(count: int = COUNT) -> list[TriedEvent]:
    return [TriedEvent(an_envelope(offset), a_history()) for offset in range(count)]


def disliked(fraction: float, count: int = COUNT) -> set[int]:
    return set(random.Random(40).sample(range(count), round(fraction * count)))


def waiting(rows: Sequence[RecordOut], topic: str) -> list[TriedEvent]:
    """Return the events that the topic now holds, as the retrier opens them."""
    tried = []
    for row in rows:
        if row.topic == topic:
            record = RecordIn(Origin(topic, 0, 0), NOW_MS, row.key, row.value, row.headers)
            envelope = open_retry_record(record)
            assert not isinstance(envelope, MalformedRecord)
            tried.append(TriedEvent(envelope, envelope.travel[1]))
    return tried


def bits(bad_count: int, count: int = COUNT) -> float:
    """Return how many yes or no answers it takes to tell which events are bad."""
    return math.log2(math.comb(count, bad_count))


@pytest.mark.parametrize("fraction", [0.01, 0.06, 0.3])
def test_who_is_refused_is_found_in_little_more_than_there_must_be(fraction: float) -> None:
    bad = disliked(fraction)
    server = Refuser(bad)
    lane = Lane(server)
    rows = lane.round(events())
    assert set(server.refused_alone) == bad
    assert sum(row.topic == DEAD for row in rows) == len(bad) == len(server.refused_alone)
    assert len(covered(rows, ReceiptOutcome.DELIVERED)) == COUNT - len(bad)
    requests = len(server.sizes)
    assert requests <= 1.5 * bits(len(bad)) + (COUNT - len(bad)) / 20
    # The allowed parallel requests are all used, except in the first and last seconds.
    assert lane.clock.now_s <= 1.1 * requests / TO.parallel_max + 20


def test_each_round_goes_on_where_the_last_one_ended() -> None:
    """With 1 s for an answer and 5 s for a round, most batches are halved over several rounds."""
    count = 6_000
    bad = disliked(0.06, count)
    server = Refuser(bad)
    lane = Lane(server, box_s=5.0, rounds=6.0)
    due, done = events(count), set[int]()
    slow, tier = retry_topic("slow"), retry_topic("30s", is_parked=True)
    parked: list[tuple[float, list[TriedEvent]]] = []
    # The pace of 20,000 events within 8 minutes.
    within_s = 480 * count / COUNT
    while due or parked:
        if not due:
            lane.clock.now_s = max(lane.clock.now_s, parked[0][0])
        while parked and parked[0][0] <= lane.clock.now_s:
            due += parked.pop(0)[1]
        rows = lane.round(due[:2_000])
        delivered = covered(rows, ReceiptOutcome.DELIVERED)
        done |= {n for first, end in delivered for n in range(first, end)}
        if again := waiting(rows, tier):
            parked.append((lane.clock.now_s + 30, again))
        due = due[2_000:] + waiting(rows, slow)
        assert lane.clock.now_s <= within_s, f"only {len(done)} events are done"
    assert set(server.refused_alone) == bad
    assert done == set(range(count)) - bad
    requests, least = len(server.sizes), bits(len(bad), count)
    assert requests <= 1.5 * least + len(done) / 20


def test_a_part_of_a_refused_batch_waits_as_one_and_without_all_of_it_nothing_is_known() -> None:
    server = Refuser({2, 9})
    # A round has time for one request.
    lane = Lane(server, box_s=0.5)

    def parts(tried: Sequence[TriedEvent]) -> list[TriedBatch]:
        rows = lane.round(tried)
        return list(tried_batches(waiting(rows, retry_topic("30s", is_parked=True)), TO))

    (all_of_it,) = parts(events(16))
    assert (all_of_it.event_count, all_of_it.is_suspect) == (16, True)
    first, second = parts(all_of_it.events)
    assert [(it.event_count, it.is_suspect) for it in (first, second)] == [(8, True), (8, False)]
    assert server.sizes[-2:] == [16, 8]
    (some,) = tried_batches(first.events[1:], TO)
    assert not some.is_suspect


@pytest.mark.parametrize("status", [413, 422])
def test_what_is_refused_for_its_size_costs_no_more_than_halving(status: int) -> None:
    server = Refuser(count_max=100, status=status)
    Lane(server).round(events())
    # Each batch of 500 is cut into seven refused and eight accepted requests.
    assert len(server.sizes) <= COUNT / 500 * 15 * 1.2
    assert server.refused_alone == []


def test_once_nothing_is_refused_batches_are_whole_again() -> None:
    server = Refuser(disliked(0.06))
    lane = Lane(server)
    lane.round(events(2_000))
    server.bad = ()
    seen = len(server.sizes)
    lane.round(events())
    assert len(server.sizes) - seen <= 250
    seen = len(server.sizes)
    lane.round(events())
    assert server.sizes[-10:] == [TO.batch_count_max] * 10
    assert len(server.sizes) - seen <= 60


def test_what_was_redriven_and_is_refused_once_more_keeps_nothing_waiting() -> None:
    """Redriven dead letters were once taken for a changed schema: probes went one by one."""
    count = 500
    again = [
        TriedEvent(an_envelope(n), replace(a_history(), redrive_count=1)) for n in range(count)
    ]
    server = Refuser(set(range(count)))
    lane = Lane(server)
    rows = lane.round(
        [*again, *[TriedEvent(an_envelope(count + n), a_history()) for n in range(count)]]
    )
    assert sum(row.topic == DEAD for row in rows) == count
    assert len(covered(rows, ReceiptOutcome.DELIVERED)) == count
    assert lane.clock.now_s <= 1.1 * len(server.sizes) / TO.parallel_max + 20
