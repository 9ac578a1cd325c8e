"""A step's JSON, the events in it, and what the tab in Locust's page shows of it."""

import json

import pytest

from loadtests.events import Bodies, find, smallest_bytes
from loadtests.page import rows
from loadtests.recorder import Recorder
from loadtests.result import StepPlan, document

ASKED = StepPlan(run="r1", stream="rating", rate=20_000, duration_s=10, warmup_s=5, batch=100)


def recorded(*, requests: int = 2_000, late_s: float = 0.001) -> Recorder:
    recorder = Recorder()
    for nth in range(requests):
        due_s = 5 + 10 * nth / requests
        recorder.note_offered(due_s)
        recorder.note_answer(
            "200",
            is_good=True,
            due_s=due_s,
            sent_s=due_s + late_s,
            ended_s=due_s + late_s + 0.004,
            events=100,
        )
        recorder.note_acked(0, [(100 * nth, 100 * nth + 100)])
    recorder.note_used(0, 3.0, 10.0)
    return recorder


def test_a_step_says_what_was_offered_and_what_came_of_it() -> None:
    found = document(ASKED, recorded())
    assert found["verdict"] == "met"
    assert (found["planned"], found["offered"], found["sent"]) == (2_000, 2_000, 2_000)
    assert found["acked_per_s"] == 20_000
    assert found["due_ms"]["p99"] == pytest.approx(5, rel=0.01)
    assert found["service_ms"]["p50"] == pytest.approx(4, rel=0.01)
    assert found["acked"] == [[0, [(0, 200_000)]]]
    assert json.loads(json.dumps(found))["cpu_share"] == 0.3


def test_a_step_that_was_stopped_early_rates_nothing() -> None:
    found = document(ASKED, recorded(), is_complete=False)
    assert found["verdict"] == "invalid"
    assert found["reasons"] == ["it was stopped before the end of its plan"]


def test_a_step_whose_generator_was_late_rates_nothing() -> None:
    assert document(ASKED, recorded(late_s=0.03))["verdict"] == "invalid"


def test_the_warm_up_comes_before_the_plan_at_its_first_rate() -> None:
    asked = StepPlan(run="r1", stream="s", plan="ramp:1000-3000:10s", warmup_s=5, batch=10)
    assert asked.requests.duration_s == 15
    assert [asked.requests.rate_at(second) for second in (1, 4.9, 5, 10)] == [100, 100, 100, 200]
    assert asked.events.count == 20_000


def test_events_are_as_long_as_asked_and_found_again() -> None:
    body = Bodies("r1", 3, batch=4, event_bytes=500).body(40, 1_700_000_000_000_000)
    events = json.loads(body)
    assert [len(json.dumps(event, separators=(",", ":"))) for event in events] == [500] * 4
    assert events[0]["id"] == "r1-3-0000000040"
    # Destinations may get them among other events.
    found = find(b'[{"id":"x"},' + body[1:])
    assert [(each.run, each.worker, each.number) for each in found] == [
        (b"r1", 3, number) for number in range(40, 44)
    ]
    assert found[0].due_us == 1_700_000_000_000_000


def test_the_shortest_event_is_as_short_as_is_said() -> None:
    least = smallest_bytes("r1")
    body = Bodies("r1", 0, batch=1, event_bytes=least).body(0, 1_700_000_000_000_000)
    assert len(body) == least + 2


def test_the_tab_shows_the_verdict_and_from_due() -> None:
    shown = {row["what"]: row["found"] for row in rows(document(ASKED, recorded(late_s=0.03)))}
    assert shown["Verdict"].startswith("invalid - the generator was late")
    assert shown["Offered"] == "2,000 of 2,000 requests"
    assert shown["Time from due"].startswith("p50 34.0, p90 34.0, p99 34.0")
    running = {**document(ASKED, recorded()), "verdict": "running", "reasons": []}
    shown = {row["what"]: row["found"] for row in rows(running)}
    assert (shown["Verdict"], shown["Events acknowledged"]) == ("running", "200,000")
    # The rows are the same before any result has come.
    assert {row["what"] for row in rows(document(ASKED, Recorder()))} == set(shown)
