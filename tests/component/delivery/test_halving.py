"""A refused batch is halved until the bad events are alone, unless everything is refused."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shared.event.record import RecordOut
from shared.event.topics import DEAD
from shared.proof.receipt import ReceiptOutcome
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.deliver_runs import covered, events, opened, plan_for, run, sample
from tests.support.servers.scripted_destination import Reply, Request, always, scripted_destination


def causes(outcomes: Sequence[RecordOut]) -> Counter[str]:
    """Return how many events wait, by cause."""
    return Counter(opened(one).cause for one in outcomes if one.topic.startswith("hifi.retry."))


def test_a_destination_that_refuses_everything_is_found_out_in_a_hundred_requests(
    tmp_path: Path,
) -> None:
    """After a schema change, halving 500 events once cost 999 requests, and all events died."""
    with scripted_destination(always(400)) as destination:
        to = sample(destination, batch_count_max=500)
        plan = replace(plan_for(to), schedule=RetrySchedule(), flow_folder=tmp_path)
        outcomes = run(events(5_000), plan)
        assert len(destination.requests) <= 100
        alone = Counter(r.events[0]["id"] for r in destination.requests if len(r.events) == 1)
        # Only events that were refused alone die; all others wait for a probe.
        dead = {json.loads(one.value)["id"] for one in outcomes if one.topic == DEAD}
        assert dead == set(alone)
        assert causes(outcomes) == {"rejecting": 5_000 - len(dead)}
        # Later events are not sent at all.
        seen = len(destination.requests)
        again = run(events(500, first=5_000), plan)
        assert len(destination.requests) == seen
    assert causes(again) == {"rejecting": 500}


@pytest.mark.parametrize("bad", [set(range(0, 500, 50)), set(range(200, 209))])
def test_a_few_bad_events_die_alone_and_all_others_arrive(bad: set[int]) -> None:
    def refuse(_: int, request: Request) -> Reply:
        return Reply(400 if any(int(e["id"][1:]) in bad for e in request.events) else 200)

    with scripted_destination(refuse) as destination:
        outcomes = run(events(500), plan_for(sample(destination, batch_count_max=500)))
    assert {
        n for first, end in covered(outcomes, ReceiptOutcome.DEAD) for n in range(first, end)
    } == bad
    assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 500 - len(bad)
