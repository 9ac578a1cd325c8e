"""Workers' counts, as the driver shows them: exact, from any machine."""

from msgspec.structs import replace
from structlog.testing import capture_logs

from delivery.metrics import DeliveryMetrics
from retrier.service import RetrierMetrics
from shared.config.destination import Destination
from shared.flow.flow import Flow, parked
from shared.flow.flow_record import FlowRecord, store_name
from shared.retry.attempt import Response
from tests.support.suite.samples import NOW_MS
from tests.unit.flow.test_flow import told

TO = Destination("orders", "shop", "https://shop.example/in", disable_after_s=1_000)


def a_record(store: str, *statuses: int, parks: int = 0) -> FlowRecord:
    flow = told(Flow(), *[Response(status) for status in statuses])
    record = FlowRecord(Flow(), store=store)
    return record.with_flow(parked(flow, "over_rate", parks), now_ms=NOW_MS)


def value(metrics: DeliveryMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"destination": "orders/shop", **labels})


def test_counts_of_several_machines_add_up_and_none_is_counted_twice() -> None:
    metrics = DeliveryMetrics(clock=lambda: NOW_MS)
    metrics.flows_before({"orders/shop": a_record("one", 200, 200, parks=7)})
    new = store_name("two", now_ms=NOW_MS)
    for record in (
        a_record("one", 200, 200, parks=7),
        a_record("one", 200, 200, 503, parks=9),
        a_record(new, 200, parks=1),
        a_record("one", 200, 200, 503, parks=9),
        a_record(new, 200, 200, parks=1),
    ):
        metrics.flow_known(TO, record)
    attempts = "hifi_delivery_attempts_total"
    assert value(metrics, attempts, outcome="ok") == 2
    assert value(metrics, attempts, outcome="recoverable") == 1
    assert value(metrics, "hifi_delivery_events_parked_total", cause="over_rate") == 3
    # Prometheus must see the counter at 0 before it grows.
    assert value(metrics, "hifi_delivery_events_parked_total", cause="internal") == 0
    # A file that was deleted starts again from zero.
    metrics.flow_known(TO, a_record("one", 200))
    assert value(metrics, attempts, outcome="ok") == 2
    # Other processes have already shown the counts of a file that is older than our first news of
    # it.
    old = store_name("three", now_ms=NOW_MS - 1)
    metrics.flow_known(TO, a_record(old, *[200] * 9))
    assert value(metrics, attempts, outcome="ok") == 2
    metrics.flow_known(TO, a_record(old, *[200] * 10))
    assert value(metrics, attempts, outcome="ok") == 3


def test_the_state_is_one_of_all_there_are() -> None:
    metrics = DeliveryMetrics()
    open_one = a_record("one", *[302] * 10)
    metrics.flow_known(TO, open_one)
    state = "hifi_delivery_flow_state"
    assert value(metrics, state, state="open") == 1
    assert value(metrics, state, state="closed") == 0
    assert value(metrics, "hifi_delivery_parallel_requests") == 2
    metrics.flow_known(TO, replace(a_record("one"), updated_at_ms=NOW_MS + 1))
    assert value(metrics, state, state="open") == 0


def test_a_failing_destination_is_warned_of_in_time_and_once_for_each_step() -> None:
    now_ms = NOW_MS
    metrics = DeliveryMetrics(clock=lambda: now_ms)
    failing, well = a_record("one", 503), a_record("one", 503, 200)

    def warned(after_s: int, record: FlowRecord = failing) -> list[float]:
        nonlocal now_ms
        now_ms = NOW_MS + 1_000 * after_s
        with capture_logs() as said:
            metrics.flow_known(TO, record)
        assert {line["event"] for line in said} <= {"destination.failing"}
        return [line["used_up"] for line in said]

    found = [warned(after_s) for after_s in (0, 499, 500, 600, 800, 950, 2_000)]
    assert found == [[], [], [0.5], [], [0.7], [0.9], []]
    assert value(metrics, "hifi_delivery_failing_ratio") == 1
    # A success ends the failures; the next failure starts from zero.
    assert warned(2_000, well) == []
    assert value(metrics, "hifi_delivery_failing_ratio") == 0
    assert warned(2_000) == [0.9]
    # Success on another machine is no reason to warn again.
    elsewhere = a_record("two", 200)
    assert (warned(2_000, elsewhere), warned(2_000)) == ([], [])
    # A destination that is already given up causes no warning.
    gone = a_record("one", 410)
    assert (warned(2_000, well), warned(2_000, gone)) == ([], [])


def test_a_lane_is_named_by_a_label_where_there_are_several() -> None:
    for metrics, prefix, labels in (
        (DeliveryMetrics(), "hifi_delivery", {"destination": "orders/shop"}),
        (RetrierMetrics(), "hifi_retrier", {"lane": "orders/shop"}),
    ):
        metrics.lane_up("orders/shop", is_up=True)
        metrics.micro_batch_done("orders/shop", events=7, duration_s=0.3)
        sample = metrics.registry.get_sample_value
        assert sample(f"{prefix}_lane_up", labels) == 1
        assert sample(f"{prefix}_micro_batch_seconds_sum", labels) == 0.3
