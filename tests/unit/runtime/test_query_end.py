"""A query ends between two micro-batches, and is cut off only when its time is over."""

import time
from typing import Any

import pytest

from shared.runtime.spark import query_end
from shared.runtime.spark.query_end import end_query


class Query:
    """One that is at its micro-batch for so many looks, or for ever."""

    def __init__(self, *, looks: float) -> None:
        self.isActive = False
        self._looks = looks
        self.stops_at_work: list[bool] = []

    @property
    def status(self) -> dict[str, Any]:
        self._looks -= 1
        return {"isTriggerActive": self._looks >= 0}

    def stop(self) -> None:
        self.stops_at_work.append(self._looks >= 0)


def end(query: Any, *, drain_s: float) -> bool:
    return end_query(query, drain_s=drain_s)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_end, "_LOOK_S", 0.001)


def test_a_query_between_two_micro_batches_ends_at_once() -> None:
    query = Query(looks=0)
    begun_s = time.monotonic()
    assert end(query, drain_s=60)
    assert time.monotonic() - begun_s < 30
    assert end(Query(looks=0), drain_s=0)
    assert not any(query.stops_at_work)


def test_a_micro_batch_is_waited_for_and_cut_off_when_its_time_is_over() -> None:
    query = Query(looks=5)
    assert end(query, drain_s=60)
    assert not any(query.stops_at_work)
    stuck = Query(looks=float("inf"))
    assert not end(stuck, drain_s=0.05)
    assert stuck.stops_at_work == [True]
