"""A finished strand does not wait for unfinished strands of its task."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from delivery.lanes import task
from delivery.lanes.marks import OPEN, Mark, open_mark
from delivery.lanes.units import Span
from delivery.sending import Sending
from shared.event.record import RecordOut
from shared.event.topics import RECEIPTS
from shared.runtime.clock import now_ms
from tests.component.delivery.test_task import PATIENCE_S, Ground, is_mark, is_of, speaks_of
from tests.support.delivery.deliver_runs import events
from tests.support.servers.scripted_destination import Reply


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    with ExitStack() as resources:
        yield Ground(monkeypatch, resources)


def test_who_follows_says_that_it_is_done_if_another_of_its_task_hangs(ground: Ground) -> None:
    """A strand whose time is over records that itself: the job's end waits for the hanging one."""
    is_said = threading.Event()

    def note(row: RecordOut) -> None:
        opened = open_mark(row.key or b"", row.value) if is_mark(row) else None
        if opened and is_of(opened[0], "a") and opened[1] and opened[1].done == 7:
            is_said.set()

    ground.outlet.refusal = note
    ground.kafka.write(events(2))
    ground.destination("a")
    ground.destination("b", lambda _, __: Reply(200 if is_said.wait(PATIENCE_S) else 400))
    ends = ground.run(a=Span(0, None, number=7), b=Span(0, None, number=8))
    assert [(ends[name].at, ends[name].error) for name in "ab"] == [(2, ""), (2, "")]
    assert ground.marks("a") == [Mark(2, OPEN), Mark(2, OPEN, done=7)]
    assert ground.marks("b") == [Mark(2, OPEN)], "the last strand needs no such mark"


def test_what_is_cancelled_below_one_is_a_fault_of_that_one(ground: Ground) -> None:
    """Otherwise a library's cancelled future would lose the reports of all other strands."""

    class CancelledTask(Sending):
        async def settle(self, rows: Any, **options: Any) -> list[RecordOut]:
            if "demo/a" in self._plan.destinations:
                raise asyncio.CancelledError("by nobody here")
            return await super().settle(rows, **options)

    ground.monkeypatch.setattr(task, "Sending", CancelledTask)
    ground.kafka.write(events(2))
    ground.destination("a")
    ground.destination("b")
    ends = ground.run(a=Span(0, 2), b=Span(0, 2))
    assert ends["a"].error == "CancelledError: by nobody here"
    assert (ends["a"].at, ends["b"].at, ends["b"].error) == (0, 2, "")


def test_who_cannot_say_that_it_is_done_is_done_with_the_report(ground: Ground) -> None:
    is_refused = threading.Event()

    def refusal(row: RecordOut) -> Exception | None:
        if not is_mark(row) or b"done" not in (row.value or b""):
            return None
        is_refused.set()
        return OSError("no room")

    ground.outlet.refusal = refusal
    ground.kafka.write(events(2))
    ground.destination("a")
    ground.destination("b", lambda _, __: Reply(200 if is_refused.wait(PATIENCE_S) else 400))
    ends = ground.run(a=Span(0, None, number=7), b=Span(0, None, number=8))
    assert [(ends[name].at, ends[name].error) for name in "ab"] == [(2, ""), (2, "")]


@pytest.mark.parametrize("is_over", [False, True])
def test_who_has_not_ended_well_or_has_no_lease_says_nothing_of_the_kind(
    ground: Ground, *, is_over: bool
) -> None:
    is_asked = threading.Event()
    last_marks = task._StrandRun.last_marks

    def asked(run: Any) -> list[RecordOut]:
        found = last_marks(run)
        is_asked.set()
        return found

    def refusal(row: RecordOut) -> Exception | None:
        is_mine = row.topic == RECEIPTS and speaks_of(row, "a")
        return OSError("no room") if is_mine and not is_over else None

    ground.monkeypatch.setattr(task._StrandRun, "last_marks", asked)
    ground.outlet.refusal = refusal
    ground.kafka.write(events(2))
    ground.destination("a")
    ground.destination("b", lambda _, __: Reply(200 if is_asked.wait(PATIENCE_S) else 400))
    if is_over:
        until_ms = now_ms() + 3_600_000
        times_ms = iter([until_ms, until_ms, until_ms + 1, until_ms + 1, until_ms + 1])
        ground.monkeypatch.setattr(task, "now_ms", lambda: next(times_ms))
        ground.given = {"ours_until_ms": until_ms}
    ends = ground.run(a=Span(0, None, number=7), b=Span(0, None, number=8))
    assert ends["a"].at == (2 if is_over else 0)
    assert [mark.done for mark in ground.marks("a")] == [None] * is_over
