"""Every acknowledged event of a step is delivered, waiting, dead, or reported as unaccounted."""

import asyncio
from typing import Any

import pytest

from loadtests import reconcile as reconciling
from loadtests.rating import judged
from loadtests.reconcile import Ends, reconcile
from loadtests.recorder import Range
from loadtests.slo import Slo

STEP: dict[str, Any] = {
    "run": "r1",
    "begun_us": 1_000_000_000,
    "warmup_s": 5.0,
    "measured_s": 10.0,
    "acked": [[0, [[0, 1_500]]]],
    "acked_per_s": 100.0,
    "seconds": [[second, 1, 1, 100] for second in range(5, 15)],
    "planned": 1_000.0,
    "offered": 1_000,
    "unsent": 0,
    "failed": 0,
    "due_ms": {"p99": 10.0},
    "late_ms": {"p99": 1.0},
    "cpu_share": 0.2,
}


class ScriptedSink:
    """A sink whose events arrive at a steady rate, except the last ones, which never arrive."""

    url = "http://127.0.0.1:9/"

    def __init__(
        self, *, per_s: float = 100, lost: list[Range] | None = None, looks: int = 0
    ) -> None:
        self._per_s, self._lost, self._looks = per_s, lost or [], looks

    def missing(self, run: str, acked: Any) -> list[tuple[int, list[Range]]]:
        assert (run, acked) == ("r1", STEP["acked"])
        self._looks -= 1
        late = [(1_400, 1_500)] if self._looks >= 0 else []
        return [(0, self._lost + late)] if self._lost or late else []

    def figures(self, run: str) -> dict[str, Any]:
        assert run == "r1"
        seconds = {1_000 + second: round(self._per_s) for second in range(1, 15)}
        # Events of the warm-up are older and do not count.
        ages = {
            1_000 + second: {"900" if second < 5 else "200": 99, "400": 1} for second in range(15)
        }
        return {"events": 1, "repeats": 3, "seconds": seconds, "ages_ms": ages}


def ends_of(sink: ScriptedSink) -> Ends:
    # Nobody listens at this address.
    return asyncio.run(reconcile(STEP, sink, "127.0.0.1:9"))  # type: ignore[arg-type]


def test_what_comes_late_is_waited_for() -> None:
    ends = ends_of(ScriptedSink(looks=2))
    assert (ends.acked, ends.delivered, ends.unaccounted) == (1_500, 1_500, 0)
    assert {name: ends.age_ms[name] for name in ("p50", "p99", "p100")} == {
        "p50": 200,
        "p99": 200,
        "p100": 400,
    }
    assert ends.came[4] == [5, 100]
    assert ends.repeats == 3
    assert ends.backlog_share == pytest.approx(0)


def test_what_never_comes_is_unaccounted_and_breaks_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Events that never arrive break the step (issue 16, A6)."""
    monkeypatch.setattr(reconciling, "_STANDSTILL_S", 0.0)
    ends = ends_of(ScriptedSink(lost=[(7, 9)]))
    assert (ends.delivered, ends.unaccounted) == (1_498, 2)
    assert ends.lost_ids == ("r1-0-0000000007", "r1-0-0000000008")
    found = judged(Slo(age_p95_ms=1_000), STEP, ends)
    assert found["verdict"] == "broken"
    said, why = found["reasons"]
    assert said == "2 acknowledged events are unaccounted for"
    assert "127.0.0.1:9" in why, "the reason must say why the tiers were not read"
    assert found["ends"]["unaccounted"] == 2


def test_a_backlog_that_grows_is_its_share_of_the_rate() -> None:
    ends = ends_of(ScriptedSink(per_s=90))
    assert ends.backlog_share == pytest.approx(0.1, abs=0.01)
    assert judged(Slo(backlog_share=0.01), STEP, ends)["verdict"] == "broken"
