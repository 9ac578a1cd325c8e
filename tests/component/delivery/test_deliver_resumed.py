"""A repaired destination is not kept waiting by its earlier failures."""

from dataclasses import replace
from pathlib import Path

from shared.event.topics import STATE
from shared.flow.flow import FlowState
from shared.flow.flow_record import open_flow_record
from shared.proof.receipt import ReceiptOutcome
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.deliver_runs import covered, events, plan_for, run, sample
from tests.support.servers.scripted_destination import scripted_destination

NOWHERE = "http://127.0.0.1:9/"


def test_a_mended_destination_gets_events_at_once_although_its_breaker_is_open(
    tmp_path: Path,
) -> None:
    with scripted_destination() as destination:
        to = sample(destination, batch_count_max=1)
        down = replace(to, url=NOWHERE)
        # With the default schedule an open breaker stays open for half a minute.
        plan = replace(plan_for(to), flow_folder=tmp_path, time_box_s=1.0, schedule=RetrySchedule())
        outcomes = run(events(40), replace(plan, destinations={to.id: down}))
        told = [open_flow_record(each.value) for each in outcomes if each.topic == STATE]
        assert told[-1] is not None
        assert told[-1].state is FlowState.OPEN
        # A new address alone is not enough: the gateway sets `resumed_at_ms` along with it.
        kept_back = run(events(40, first=40), plan)
        assert destination.requests == []
        assert len(covered(kept_back, ReceiptOutcome.WAITING)) == 40
        resumed = replace(to, resumed_at_ms=1)
        after = run(events(40, first=80), replace(plan, destinations={to.id: resumed}))
        assert len(covered(after, ReceiptOutcome.DELIVERED)) == 40
        # A probe of one event came before all other requests.
        assert len(destination.requests[0].events) == 1
