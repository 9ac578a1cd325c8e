"""Reasons to hold back a replay: its settings, and the state of its destination."""

import asyncio
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from retrier.loop import GROUP
from retrier.restraint import Restraint, part_of
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.flow.breaker import Breaker, BreakerState
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.flow.rate_gate import RateGate
from shared.retry.replay import ReplayOrder
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.leases.fenced_positions import FencedPositions
from shared.runtime.kafka.state_topic import StateFeed

NOBODY = "127.0.0.1:1"
NOW_MS = 1_000_000
TO = Destination("orders", "shop", "https://to.example/")
ORDER = ReplayOrder(
    id="r",
    stream="orders",
    destination="shop",
    tenant="default",
    spans={},
    created_at_ms=1,
    rate_per_s=100.0,
)


class ReplayGround:
    """A replay of ORDER with its retrier's knowledge; Kafka is asked only after a first write."""

    def __init__(self, *, within_s: float = 30.0) -> None:
        self.config, self.states = ConfigFeed(NOBODY), StateFeed(NOBODY)
        self.know(TO)
        schedule = RetrySchedule()
        self.restraint = Restraint(
            ORDER,
            config=self.config,
            states=self.states,
            fenced=FencedPositions(NOBODY, GROUP),
            reader=None,  # type: ignore[arg-type]
            schedule=schedule.scaled(within_s / schedule.tiers[0].delay_s),
            tenant_count=lambda: 1,
        )

    def know(self, *destinations: Destination, tenant: str = "default") -> None:
        self.config.value = Configuration(
            streams={"orders": Stream("orders", tenant=tenant)},
            destinations={each.id: each for each in destinations},
        )

    def why(self, flow: FlowRecord | None = None) -> str:
        self.states.value = {} if flow is None else {TO.id: flow}
        return asyncio.run(self.restraint.why(NOW_MS))


def record(flow: Flow, state: FlowState, *, store: str = "m1-1") -> FlowRecord:
    return FlowRecord(flow, store=store, state=state)


def test_each_tenant_has_the_same_part_however_many_it_has() -> None:
    running = ["many", "many", "few", "many", "many"]
    assert [part_of(tenant, running) for tenant in ("many", "few")] == [1 / 8, 1 / 2]
    assert part_of("new", ["few"]) == 1 / 2
    assert part_of("alone", []) == 1


def test_nothing_holds_it_back_while_all_is_well() -> None:
    held = ReplayGround()
    assert (held.restraint.failure, held.why()) == ("", "")
    assert held.why(record(Flow(), FlowState.CLOSED)) == ""
    assert held.restraint.rate_max == 100.0
    held.know(replace(TO, rate_per_s=7.0))
    assert held.restraint.rate_max == 7.0


def test_it_has_failed_once_what_it_is_for_is_gone_or_somebody_elses() -> None:
    held = ReplayGround()
    held.know()
    assert held.restraint.failure == "the destination was removed"
    held.know(TO, tenant="others")
    assert held.restraint.failure == "the stream was removed"
    held.config.value = Configuration()
    assert held.restraint.failure == "the stream was removed"


@pytest.mark.parametrize(
    ("state", "until_ms", "why"),
    [
        (BreakerState.OPEN, NOW_MS + 1, "nothing is sent to the destination: open"),
        # The next request is the probe.
        (BreakerState.OPEN, NOW_MS, ""),
        (BreakerState.HALF_OPEN, NOW_MS + 1, "nothing is sent to the destination: half_open"),
    ],
)
def test_it_waits_while_the_destination_fails(state: BreakerState, until_ms: int, why: str) -> None:
    flow = Flow(breaker=Breaker(state=state, until_ms=until_ms))
    assert ReplayGround().why(record(flow, FlowState(state.value))) == why


def test_it_waits_while_the_destination_asks_for_it_is_disabled_or_paused() -> None:
    held = ReplayGround()
    gate = Flow(gate=RateGate(closed_until_ms=NOW_MS + 1))
    assert (
        held.why(record(gate, FlowState.RATE_LIMITED))
        == "nothing is sent to the destination: rate-limited"
    )
    assert held.why(record(Flow(), FlowState.DISABLED)) == "the destination is disabled"
    held.know(replace(TO, is_disabled=True))
    assert held.why() == "the destination is disabled"
    held.know(replace(TO, is_paused=True))
    assert held.why() == "the destination is paused"


def test_it_waits_while_the_destination_has_more_than_it_takes_on_any_machine() -> None:
    held, well = ReplayGround(), ""
    full = "the destination gets more events than it takes"

    def told(parked: int, store: str = "m1-1") -> str:
        return held.why(record(Flow(parks={"budget": parked}), FlowState.CLOSED, store=store))

    # Events that were parked before the replay began do not count.
    assert (told(10_000), told(10_500), told(90_000, "m2-1")) == (well, well, well)
    assert (told(90_001, "m2-1"), told(10_500)) == (full, full)
    brief = ReplayGround(within_s=1e-6)
    flow = record(Flow(), FlowState.CLOSED)
    crowded = changed(flow, flow=Flow(parks={"budget": 5_000}))
    assert [brief.why(each) for each in (flow, crowded)] == [well, full]
    assert brief.why(crowded) == well
