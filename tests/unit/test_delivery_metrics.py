"""What workers counted, as the driver shows it: exact, from whatever machine it comes."""

from dataclasses import replace

from delivery.metrics import DeliveryMetrics
from shared.attempt import Responded
from shared.flow import Flow, parked
from shared.flow_record import FlowRecord
from tests.unit.samples import NOW_MS
from tests.unit.test_flow import told


def a_record(store: str, *statuses: int, parks: int = 0) -> FlowRecord:
    flow = told(Flow(), *[Responded(status) for status in statuses])
    record = FlowRecord(Flow(), store=store)
    return record.with_flow(parked(flow, "over_rate", parks), now_ms=NOW_MS)


def value(metrics: DeliveryMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"destination": "orders/shop", **labels})


def test_counts_of_several_machines_add_up_and_none_is_counted_twice() -> None:
    metrics = DeliveryMetrics()
    metrics.flows_before({"orders/shop": a_record("one", 200, 200, parks=7)})
    for record in (
        a_record("one", 200, 200, parks=7),
        a_record("one", 200, 200, 503, parks=9),
        a_record("two", 200, parks=1),
        a_record("one", 200, 200, 503, parks=9),
        a_record("two", 200, 200, parks=1),
    ):
        metrics.flow_known("orders/shop", record)
    attempts = "hifi_delivery_attempts_total"
    assert value(metrics, attempts, outcome="ok") == 2
    assert value(metrics, attempts, outcome="recoverable") == 1
    assert value(metrics, "hifi_delivery_events_parked_total", cause="over_rate") == 3
    # A file that was deleted begins anew.
    metrics.flow_known("orders/shop", a_record("one", 200))
    assert value(metrics, attempts, outcome="ok") == 2


def test_the_state_is_one_of_all_there_are() -> None:
    metrics = DeliveryMetrics()
    open_one = a_record("one", *[503] * 10)
    metrics.flow_known("orders/shop", open_one)
    state = "hifi_delivery_flow_state"
    assert value(metrics, state, state="open") == 1
    assert value(metrics, state, state="closed") == 0
    assert value(metrics, "hifi_delivery_parallel_requests") == 2
    metrics.flow_known("orders/shop", replace(a_record("one"), updated_at_ms=NOW_MS + 1))
    assert value(metrics, state, state="open") == 0
