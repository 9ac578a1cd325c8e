"""With `order = "stream"` a destination gets one request at a time, and no event overtakes.

Each step continues, like a lane, from the position in the mark that the previous step wrote.
"""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from delivery.lanes.marks import Mark
from delivery.lanes.units import Span, StrandEnd
from shared.config.destination import Destination
from shared.config.selection import Condition
from shared.event.envelope import DESTINATION, LAST_STATUS, open_retry_record
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import DEAD, RETRY_PREFIX
from shared.flow.flow import FlowState
from shared.flow.flow_record import open_flow_record
from shared.proof.receipt import ReceiptOutcome
from shared.runtime.clock import now_ms
from tests.component.delivery.test_task import Ground
from tests.support.delivery.deliver_runs import QUICK, covered, events, new_folder
from tests.support.servers.scripted_destination import Reply, Request, always

COUNT = 120


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    with ExitStack() as resources:
        ground = Ground(monkeypatch, resources)
        ground.kafka.write(events(COUNT))
        ground.given = {"flow_folder": new_folder(), "unasked": frozenset()}
        yield ground


def step(ground: Ground, mark: Mark, end: int = COUNT, **settings: Any) -> tuple[Mark, StrandEnd]:
    """Run one job, and return what the lane knows after it."""
    wanted = {"order": "stream", "batch_count_max": 7, "timeout_s": 0.3, **settings}
    to = Destination("demo", "a", ground.to["a"].url, **wanted)
    ground.given["destinations"] = {to.id: to}
    until = min(end, mark.until) if mark.until > mark.at else end
    span = Span(mark.at, until, mark.until if mark.until > mark.at else 0, waiting=mark.waiting)
    told = len(ground.marks("a"))
    report = ground.run(a=span)["a"]
    assert not report.error
    (*_, last) = ground.marks("a")[told:] or [mark]
    assert last.at == report.at
    return last, report


def first_came(ground: Ground) -> list[str]:
    """Return the accepted ids, in the order of their first arrival."""
    taken = [event["id"] for request in ground.to["a"].accepted for event in request.events]
    return list(dict.fromkeys(taken))


def in_tiers(rows: list[RecordOut]) -> list[RecordOut]:
    return [row for row in rows if row.topic.startswith(RETRY_PREFIX)]


def drained(ground: Ground, *, within_s: float = 60.0) -> list[StrandEnd]:
    mark, reports, began_s = Mark(0, 0), [], time.monotonic()
    while mark.at < COUNT:
        assert time.monotonic() - began_s < within_s
        mark, report = step(ground, mark)
        reports.append(report)
        if report.block is not None:
            time.sleep(report.block.wait_ms / 1000)
    return reports


class Moody:
    """Fails for a while, in all possible ways, and counts how many requests it gets at once."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._count = 0
        self.at_once = 0

    def __call__(self, _: int, request: Request) -> Reply:
        with self._lock:
            self._count += 1
            self.at_once = max(self.at_once, self._count)
            reply = self._reply(request)
        if not reply.delay_s:
            time.sleep(0.001)
        with self._lock:
            self._count -= 1
        return reply

    def _reply(self, request: Request) -> Reply:
        ids = [event["id"] for event in request.events]
        if "e77" in ids:
            # It always refuses this event, and does not name it.
            return Reply(422)
        named = json.dumps({"failed": [{"id": each, "status": 500} for each in ids[1:]]})
        bad = [
            Reply(503),
            Reply(500),
            Reply(429, {"retry-after": "0"}),
            Reply(breaks_off=True),
            Reply(delay_s=0.4),
            Reply(207, {}, named.encode()) if len(ids) > 1 else Reply(503),
        ]
        return bad[nth] if (nth := self._dice.randrange(12)) < len(bad) else Reply()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_moody_destination_has_each_event_in_its_order_and_none_beside_another(
    ground: Ground, seed: int
) -> None:
    moody = Moody(seed)
    ground.destination("a", moody)
    reports = drained(ground)
    assert sum(report.block is not None for report in reports) > 2, "the lane was never held up"
    taken = first_came(ground)
    rest = [f"e{n}" for n in range(COUNT) if n != 77]
    assert [each for each in taken if each != "e77"] == rest
    assert moody.at_once == 1
    # Nothing went to the retrier, and one event is dead: each has one outcome.
    rows = ground.outlet.rows
    assert in_tiers(rows) == []
    assert list(covered(rows, ReceiptOutcome.DEAD)) == [(77, 78)]
    assert len(covered(rows, ReceiptOutcome.DELIVERED)) == COUNT - 1
    assert len([row for row in rows if row.topic == DEAD]) == 1


def test_the_event_that_holds_up_the_others_goes_on_with_what_was_tried(ground: Ground) -> None:
    ground.destination("a", always(503))
    mark, report = step(ground, Mark(0, 0))
    assert report.block is not None
    assert (mark.at, mark.until) == (0, 0)
    assert mark.waiting is not None
    assert (mark.waiting.attempt_count, mark.waiting.last_status) == (1, 503)
    assert 0 < mark.wait_ms == report.block.wait_ms
    assert mark.waiting.not_before_ms - now_ms() <= mark.wait_ms
    again, _ = step(ground, mark)
    assert again.waiting is not None
    assert again.waiting.attempt_count == 2
    assert again.waiting.deadline_at_ms == mark.waiting.deadline_at_ms
    assert again.waiting.first_attempt_at_ms == mark.waiting.first_attempt_at_ms
    assert ground.stored("a") == set()


def test_its_flow_says_what_holds_it_up_until_something_is_taken(ground: Ground) -> None:
    mood = [503]
    ground.destination("a", lambda _, __: Reply(mood[0]))
    mark, _ = step(ground, Mark(0, 0))
    record = open_flow_record((ground.given["flow_folder"] / "demo.a.json").read_bytes())
    assert record is not None
    assert (record.state, record.flow.blocking.offset) == (FlowState.HELD, 0)
    assert record.flow.blocking.attempts == 1
    mood[0] = 200
    while mark.at < COUNT:
        mark, report = step(ground, mark)
        if report.block is not None:
            time.sleep(report.block.wait_ms / 1000)
    record = open_flow_record((ground.given["flow_folder"] / "demo.a.json").read_bytes())
    assert record is not None
    assert not record.flow.is_blocked


def test_at_its_deadline_it_is_a_dead_letter_that_says_so_and_the_next_one_is_tried(
    ground: Ground,
) -> None:
    ground.given["schedule"] = QUICK.scaled(0.0005)
    ground.destination("a", always(503))
    mark = Mark(0, 0)
    began_s = time.monotonic()
    while mark.at < 2:
        assert time.monotonic() - began_s < 60
        mark, _ = step(ground, mark, body_format="single")
    letters = [row for row in ground.outlet.rows if row.topic == DEAD]
    assert len(letters) >= 2
    for nth, row in enumerate(letters[:2]):
        said = dict(row.headers)
        assert said[DESTINATION] == b"demo/a"
        assert said["reason"] == b"deadline_passed"
        assert said[LAST_STATUS] == b"503"
        place = Origin(DEAD, 0, nth)
        letter = open_retry_record(RecordIn(place, 1, row.key, row.value or b"", row.headers))
        assert letter.origin.offset == nth  # type: ignore[union-attr]


def test_what_is_filtered_beyond_it_has_no_outcome_yet(ground: Ground) -> None:
    wanted = (Condition("/id", "one_of", ("e0", "e2", "e4")),)
    ground.destination("a", always(503))
    mark, _ = step(ground, Mark(0, 0), end=6, filter=wanted)
    assert mark.at == 0
    assert ground.stored("a") == set()


def test_once_it_is_disabled_all_become_dead_letters_in_their_order(ground: Ground) -> None:
    ground.destination("a", always(503))
    mark, report = step(ground, Mark(0, 0), is_disabled=True)
    assert (mark.at, report.block) == (COUNT, None)
    letters = [row for row in ground.outlet.rows if row.topic == DEAD]
    origins = [int(dict(row.headers)["origin-offset"]) for row in letters]
    assert origins == list(range(COUNT))
