"""Steps are entered once they are over, with the backlog of that time; restarts leave no gap."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from observe.lag.recorder import Recorder
from observe.series.series import Series
from observe.series.steps import STEP_MS, DestinationStep, EndedStep
from shared.proof.overview import Overview
from tests.support.console.console_fixtures import overview
from tests.support.console.past_series import an_ended, open_series

NOW = 179_000_000


@dataclass
class KnownSteps:
    """A fake of a sampler, with known steps."""

    overview: Overview = field(default_factory=overview)
    is_reading: bool = False
    asked: list[int] = field(default_factory=list)

    def ended(self, step: int) -> EndedStep | None:
        self.asked.append(step)
        return None if self.is_reading else an_ended()


def look(recorder: Recorder, step: int) -> bool:
    return asyncio.run(recorder.look(step * STEP_MS + 1_500))


def newest(series: Series, step: int, name: str = "orders/lake") -> DestinationStep:
    past = series.past([], [name], 0, now_ms=step * STEP_MS)
    taken = past.moments[-1].taken
    assert taken is not None
    return taken


def test_a_step_is_entered_once_receipts_of_it_have_come_with_what_waited_at_its_end(
    tmp_path: Path,
) -> None:
    source, series = KnownSteps(), open_series(tmp_path)
    recorder = Recorder(source, series)
    assert look(recorder, NOW)
    # The figures of the last minutes are there at once; the newest step is not complete yet.
    assert source.asked == list(range(NOW - 28, NOW - 1))
    assert series.newest == NOW - 2
    source.asked.clear()
    assert look(recorder, NOW)
    assert source.asked == []
    shown = source.overview.streams[0].destinations[1]
    waits = replace(shown, backlog_events=77, oldest_age_s=None)
    stream = replace(source.overview.streams[0], destinations=(waits,))
    source.overview = replace(source.overview, streams=(stream,))
    assert look(recorder, NOW + 1)
    # The backlog at the end of that step counts, not the present one.
    assert newest(series, NOW + 1).backlog == shown.backlog_events
    assert look(recorder, NOW + 2)
    assert newest(series, NOW + 2).backlog == 77
    assert newest(series, NOW + 2).oldest_s == 0
    assert source.asked == [NOW - 1, NOW]


def test_nothing_is_entered_while_not_all_is_read(tmp_path: Path) -> None:
    source, series = KnownSteps(is_reading=True), open_series(tmp_path)
    recorder = Recorder(source, series)
    assert look(recorder, NOW)
    assert series.newest == 0
    source.is_reading = False
    assert look(recorder, NOW + 2)
    assert series.newest == NOW


def test_a_clock_that_is_set_back_is_waited_for_some_minutes_and_then_believed(
    tmp_path: Path,
) -> None:
    source, series = KnownSteps(), open_series(tmp_path)
    recorder = Recorder(source, series)
    assert look(recorder, NOW)
    source.asked.clear()
    assert look(recorder, NOW - 20)
    assert source.asked == []
    assert look(recorder, NOW - 8_640)
    assert source.asked == [NOW - 8_642]
    assert look(recorder, NOW - 8_639)
    assert series.newest == NOW - 8_641
    # After a jump forward, the steps that nobody saw are a gap.
    assert look(recorder, NOW + 500)
    past = series.past([], ["orders/lake"], 1, now_ms=(NOW + 500) * STEP_MS)
    assert past.moments[-1].taken is not None
    assert past.moments[-20].taken is None


def test_a_folder_that_cannot_be_had_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing folder does not stop observe, whose alarms matter more than charts."""
    in_the_way = tmp_path / "series"
    in_the_way.write_text("not a folder")
    source, series = KnownSteps(), Series(in_the_way)
    monkeypatch.setattr("observe.lag.recorder._LOOK_S", 0.001)
    assert series.past(["orders"], ["orders/lake"], 0, now_ms=NOW * STEP_MS).is_empty

    tries = []
    really = series.open

    def open_() -> None:
        tries.append(1)
        if len(tries) == 3:
            in_the_way.unlink()
        really()

    monkeypatch.setattr(series, "open", open_)
    recorder = Recorder(source, series)
    looked = asyncio.Event()
    look_now = recorder.look

    async def look_once(at_ms: int) -> bool:
        looked.set()
        return await look_now(at_ms)

    monkeypatch.setattr(recorder, "look", look_once)

    async def go_on() -> None:
        running = asyncio.create_task(recorder.run())
        await asyncio.wait_for(looked.wait(), 20)
        running.cancel()

    asyncio.run(go_on())
    assert len(tries) == 3
    assert series.is_open
    series.close()


def test_a_disk_that_takes_no_more_costs_pictures_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, series = KnownSteps(), open_series(tmp_path)
    recorder = Recorder(source, series)
    tries = []

    def full(*_: object) -> bool:
        tries.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(series, "end_step", full)
    monkeypatch.setattr("observe.lag.recorder._LOOK_S", 0.001)

    async def go_on() -> None:
        running = asyncio.create_task(recorder.run())
        while len(tries) < 3:
            await asyncio.sleep(0.001)
            assert not running.done()
        running.cancel()

    asyncio.run(go_on())
