"""A worker bounds its wait for destinations that do not answer (ADR 0062)."""

import threading

from delivery.lanes import task
from delivery.lanes.units import Span
from shared.event.record import RecordOut
from shared.event.topics import retry_topic
from tests.component.delivery.test_task import (
    PATIENCE_S,
    Ground,
    ground,
    is_mark,
    speaks_of,
)
from tests.support.delivery.deliver_runs import events, opened
from tests.support.servers.scripted_destination import Reply

__all__ = ["ground"]


def test_a_job_in_a_hurry_waits_a_moment_for_an_answer_and_parks_what_has_none(
    ground: Ground,
) -> None:
    """A job is in a hurry if its place is never lent (ADR 0062)."""
    is_over = threading.Event()

    def until_all_is_over(_: int, __: object) -> Reply:
        return Reply(200 if is_over.wait(PATIENCE_S) else 400)

    ground.kafka.write(events(2))
    ground.destination("a", until_all_is_over)
    ground.destination("b")
    ground.given = {"patience_s": 2.0}
    ends = ground.run(a=Span(0, 2), b=Span(0, 2))
    is_over.set()
    assert [(ends[name].at, ends[name].error) for name in "ab"] == [(2, ""), (2, "")]
    parked = [row for row in ground.outlet.rows if row.topic == retry_topic("30s", is_parked=True)]
    assert {(opened(row).cause, opened(row).is_ambiguous) for row in parked} == {
        ("slow_answer", True)
    }
    assert len(parked) == 2


def test_a_crowd_that_hangs_does_not_fill_a_task(ground: Ground) -> None:
    """Strands start side by side; one that waits for an answer starts no more requests."""
    _few_places(ground, count=2, patience_s=0.1)
    _hang_until_z_is_marked(ground, "abcd")
    ends = ground.run(**dict.fromkeys("abcdz", Span(0, 2)))
    assert {name: (end.at, end.error) for name, end in ends.items()} == dict.fromkeys(
        "abcdz", (2, "")
    )
    assert [len(ground.to[name].accepted) for name in "abcd"] == [1] * 4


def test_a_crowd_that_hangs_leaves_half_of_the_places_to_other_tenants(ground: Ground) -> None:
    """Otherwise the crowd's strands would take all places, round after round."""
    # No strand of the crowd gives its place up to another.
    _few_places(ground, count=4, patience_s=2 * PATIENCE_S)
    _hang_until_z_is_marked(ground, "abcdefgh")
    ground.tenants |= dict.fromkeys("abcdefgh", "crowd") | {"z": "neighbour"}
    ends = ground.run(**dict.fromkeys("abcdefghz", Span(0, 2)))
    assert {end.at for end in ends.values()} == {2}
    assert [len(ground.to[name].accepted) for name in "abcdefgh"] == [1] * 8


def _hang_until_z_is_marked(ground: Ground, crowd: str) -> None:
    """Write two events for each, and answer those of the crowd once `z` has its mark."""
    is_marked = threading.Event()

    def until_the_other_is_marked(_: int, __: object) -> Reply:
        return Reply(200 if is_marked.wait(PATIENCE_S) else 400)

    def note(row: RecordOut) -> None:
        if is_mark(row) and speaks_of(row, "z"):
            is_marked.set()

    ground.outlet.refusal = note
    ground.kafka.write(events(2))
    for name in crowd:
        ground.destination(name, until_the_other_is_marked)
    ground.destination("z")


def _few_places(ground: Ground, *, count: int, patience_s: float) -> None:
    ground.monkeypatch.setattr(task, "_SIDE_BY_SIDE", count)
    ground.monkeypatch.setattr(task, "PATIENCE_S", patience_s)
