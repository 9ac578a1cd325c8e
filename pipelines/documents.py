"""Keeps which documents are to be run by this process, and what has been judged of each. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, Standing


class EndedExecutors(NamedTuple):
    """How often a pipeline has ended its executor, and when last."""

    times: int = 0
    at_ms: int = 0


@dataclass(slots=True)
class Documents:
    """By the pipelines' titles: one that is being built is told from the one that runs."""

    ours: dict[str, Pipeline] = field(default_factory=dict)
    # What runs: the last document that was not refused, until its successor has been judged.
    running: dict[str, Pipeline] = field(default_factory=dict)
    states: dict[str, PipelineState] = field(default_factory=dict)
    # Whose states nobody has been told yet.
    untold: set[str] = field(default_factory=set)
    # Who has ended executors here; and before, as whoever ran it then has told.
    ended: dict[str, EndedExecutors] = field(default_factory=dict)
    ended_before: Callable[[str], EndedExecutors] = lambda _: EndedExecutors()

    def take(self, ours: Iterable[Pipeline], *, now_ms: int) -> list[Pipeline]:
        """These are ours from now on; gives those that have to be judged."""
        self.ours = {pipeline.title: pipeline for pipeline in ours}
        for gone in self.states.keys() - self.ours.keys():
            del self.states[gone]
            self.running.pop(gone, None)
            self.untold.discard(gone)
            self.ended.pop(gone, None)
        new = [one for one in self.ours.values() if not self._is_judged(one)]
        for pipeline in new:
            self._say(pipeline, PipelineState(pipeline.fingerprint, "checking", at_ms=now_ms))
        return new

    def judge_again(self, names: Iterable[str]) -> None:
        """What was judged of these does not hold any more."""
        for name in names:
            self.states.pop(name, None)

    def judged(self, pipeline: Pipeline, *, why: str = "", pointer: str = "", now_ms: int) -> bool:
        """Enter what has been found; False if it is not the document that counts any more."""
        if not self._is_judged(pipeline):
            return False
        if why:
            self.running.pop(pipeline.title, None)
        else:
            self.running[pipeline.title] = pipeline
        self._say(
            pipeline,
            PipelineState(
                pipeline.fingerprint, "refused" if why else "running", why, pointer, now_ms
            ),
        )
        return True

    def held_up(self, name: str, why: str, *, now_ms: int) -> None:
        """It runs, and cannot get on with it; without a why it can again."""
        known = self.states.get(name)
        if known is not None and known.standing in {"running", "replacing"} and known.why != why:
            self.states[name] = replace(known, why=why, at_ms=now_ms)
            self.untold.add(name)

    def ended_executor(self, title: str, why: str, *, now_ms: int) -> None:
        """With nothing else at work in it."""
        if (known := self.states.get(title)) is not None:
            self.ended[title] = EndedExecutors(self._ended(title).times + 1, now_ms)
            self._say(self.ours[title], replace(known, why=why, at_ms=now_ms))

    def lost(self, title: str, count: int, offsets: str, *, now_ms: int) -> None:
        """Kafka has deleted that many offsets before it read them, these last."""
        if (known := self.states.get(title)) is not None:
            state = replace(known, lost=known.lost + count, lost_last=offsets, at_ms=now_ms)
            self._say(self.ours[title], state)

    def noted(self, title: str, note: str, *, now_ms: int) -> None:
        """What it reads that Kafka has no more; empty: nothing."""
        known = self.states.get(title)
        if known is not None and known.note != note:
            self._say(self.ours[title], replace(known, note=note, at_ms=now_ms))

    def built(
        self, title: str, behind: int | None, *, now_ms: int, has_caught_up: bool = False
    ) -> None:
        """How many events it is behind what it is to replace; None once it has taken its place."""
        standing: Standing = "running" if behind is None else "replacing"
        known = self.states.get(title)
        if known is not None and known.standing in {"running", "replacing"}:
            state = replace(known, standing=standing, behind=behind, has_caught_up=has_caught_up)
            if state != known:
                self._say(self.ours[title], replace(state, at_ms=now_ms))

    def keeps(self, title: str, kept: int, kept_bytes: int, *, now_ms: int) -> None:
        """How many windows or keys it keeps."""
        known = self.states.get(title)
        if known is not None and (known.kept, known.kept_bytes) != (kept, kept_bytes):
            state = replace(known, kept=kept, kept_bytes=kept_bytes, at_ms=now_ms)
            self._say(self.ours[title], state)

    def by_lane(self) -> dict[str, Pipeline]:
        """What runs, by the lane that it has."""
        return {pipeline.lane_id: pipeline for pipeline in self.running.values()}

    def _is_judged(self, pipeline: Pipeline) -> bool:
        """Or is being judged."""
        known = self.states.get(pipeline.title)
        return known is not None and known.fingerprint == pipeline.fingerprint

    def _ended(self, title: str) -> EndedExecutors:
        return self.ended.get(title) or self.ended_before(title)

    def _say(self, pipeline: Pipeline, state: PipelineState) -> None:
        times, at_ms = self._ended(pipeline.title)
        state = replace(state, executors_ended=times, executor_ended_at_ms=at_ms)
        self.states[pipeline.title] = state
        self.untold.add(pipeline.title)
