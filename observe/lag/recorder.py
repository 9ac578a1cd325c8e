"""Enters each step of time into the series once it is over."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from observe.lag.progress import WINDOW_MS
from observe.series.series import SETTLES, Series
from observe.series.steps import STEP_MS, EndedStep
from shared.proof.overview import DestinationView, Overview
from shared.runtime.clock import now_ms

log = structlog.get_logger()

_LOOK_S = 1.0
# The newest steps whose receipts are counted separately, so that steps missed during a restart can
# be filled in.
_BACK = WINDOW_MS // STEP_MS - SETTLES
# The views with the backlog and the age of the oldest event, by destination.
_Views = Mapping[str, DestinationView]


class StepSource(Protocol):
    """The source of figures of past steps: the sampler."""

    @property
    def overview(self) -> Overview: ...

    def ended(self, step: int) -> EndedStep | None: ...


class Recorder:
    def __init__(self, source: StepSource, series: Series) -> None:
        self._source = source
        self._series = series
        # The backlog at the end of each of the newest steps.
        self._views: dict[int, _Views] = {}
        self._is_failing = False

    async def run(self) -> None:
        """Record until cancelled; a full disk costs only charts."""
        while True:
            try:
                if not self._series.is_open:
                    await asyncio.to_thread(self._series.open)
                has_room = await self.look(now_ms())
                trouble = "" if has_room else "there is no room for all names"
            except OSError as error:
                trouble = repr(error)
            if trouble and not self._is_failing:
                log.warning("series.incomplete", error=trouble)
            self._is_failing = bool(trouble)
            await asyncio.sleep(_LOOK_S)

    async def look(self, at_ms: int) -> bool:
        """Enter the finished steps; return False if there was no room for all of them."""
        going_on = at_ms // STEP_MS
        if going_on - 1 not in self._views:
            views = self._source.overview.takers
            self._views = {
                step: views for step, views in self._views.items() if step > going_on - 2 * SETTLES
            }
            self._views[going_on - 1] = {view.destination_id: view for view in views}
        has_room, newest = True, self._series.newest
        if newest > going_on + _BACK:
            # The clock was set back too far to wait until it has caught up.
            newest = going_on - SETTLES - 1
        for step in range(max(newest + 1, going_on - _BACK), going_on - SETTLES + 1):
            ended = self._source.ended(step)
            if ended is None:
                break
            ended = _with_views(ended, self._views.get(step, {}))
            has_room = await asyncio.to_thread(self._series.end_step, step, ended)
        return has_room


def _with_views(ended: EndedStep, views: _Views) -> EndedStep:
    """Add the backlog at the end of the step; it is unknown if the step is filled in later."""
    taken = dict(ended.taken)
    for name, (step, lags) in taken.items():
        if (view := views.get(name)) is not None:
            backlog, oldest_s = float(view.backlog_events), view.oldest_age_s or 0.0
            taken[name] = step._replace(backlog=backlog, oldest_s=oldest_s), lags
    return replace(ended, taken=taken)
