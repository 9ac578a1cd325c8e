"""Which lanes delivery runs, and which of them rest."""

from dataclasses import replace

from delivery.__main__ import wanted
from delivery.settings import DeliverySettings
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms

TO = Destination(stream="s", name="d", url="http://localhost/")
GONE = FlowRecord(Flow(), state=FlowState.DISABLED, updated_at_ms=now_ms())


def resting(to: Destination, known: FlowRecord | None = None) -> dict[str, bool]:
    settings = DeliverySettings(latency=to.latency)
    flows = {} if known is None else {to.id: known}
    lanes = wanted(Configuration(destinations={to.id: to}), flows, settings=settings)
    return {name: lane.is_resting for name, lane in lanes.items()}


def test_a_lane_rests_while_its_destination_may_not_be_sent_to() -> None:
    assert resting(TO) == {"s/d": False}
    assert resting(TO, FlowRecord(Flow())) == {"s/d": False}
    assert resting(TO, GONE) == {"s/d": True}
    assert resting(replace(TO, is_disabled=True)) == {"s/d": True}
    # A person has had it resumed since then.
    assert resting(replace(TO, resumed_at_ms=now_ms() + 1), GONE) == {"s/d": False}


def test_real_time_does_not_rest_and_a_paused_lane_does_not_run() -> None:
    assert resting(replace(TO, latency="realtime"), GONE) == {"s/d": False}
    assert resting(replace(TO, is_paused=True), GONE) == {}
