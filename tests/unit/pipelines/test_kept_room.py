"""Room that pipelines may fill: while some is left, nobody is refused because of others."""

import pytest

from pipelines.jobs import lane_states
from pipelines.jobs.lane_states import LaneState, LaneStates
from pipelines.windows.change import Head
from pipelines.windows.open_windows import OpenWindows
from shared.config.steps.window import WindowOf


def lane(tenant: str, size: int) -> LaneState:
    kept = OpenWindows(WindowOf(compute={"n": "count(*)"}, every="1 minute"), Head())
    kept.size = size
    return LaneState(tenant, kept)


def test_each_tenant_has_its_part_and_what_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_states, "_TENANT_MAX", 60)
    monkeypatch.setattr(lane_states, "_PROCESS_MAX", 100)
    lanes = LaneStates({"a": lane("one", 40), "b": lane("one", 10), "c": lane("two", 10)})
    # As much as a tenant may have at all.
    assert (lanes.room_of("a"), lanes.room_of("b"), lanes.room_of("c")) == (10, 10, 40)
    lanes.by_lane["d"] = lane("three", 45)
    # All room is taken: a tenant with less than a third of it gets up to a third.
    assert lanes.room_of("a") <= 0
    assert lanes.room_of("c") == 100 // 3 - 10
