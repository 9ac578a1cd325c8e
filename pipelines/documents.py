"""Tracks which documents this process is to run, and how each was judged. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, Standing


class EndedExecutors(NamedTuple):
    """How often a pipeline has ended its executor, and when it last did."""

    times: int = 0
    at_ms: int = 0


@dataclass(slots=True)
class Documents:
    """The documents by title; a replacement that is being built has a title of its own."""

    ours: dict[str, Pipeline] = field(default_factory=dict)
    # For each title, the last document that was not refused, until its successor is judged.
    running: dict[str, Pipeline] = field(default_factory=dict)
    states: dict[str, PipelineState] = field(default_factory=dict)
    # Titles whose states are not yet written to Kafka.
    untold: set[str] = field(default_factory=set)
    # The executors that pipelines have ended: in this process, and as earlier processes reported.
    ended: dict[str, EndedExecutors] = field(default_factory=dict)
    ended_before: Callable[[str], EndedExecutors] = lambda _: EndedExecutors()

    def take(self, ours: Iterable[Pipeline], *, now_ms: int) -> list[Pipeline]:
        """Set the documents that are ours from now on; return those that have to be judged."""
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
        """Forget the judgements of these documents, which no longer hold."""
        for name in names:
            self.states.pop(name, None)

    def judged(self, pipeline: Pipeline, *, why: str = "", pointer: str = "", now_ms: int) -> bool:
        """Enter a judgement; return False if the document no longer counts."""
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
        """Note why a running pipeline cannot continue; an empty `why` means that it can again."""
        known = self.states.get(name)
        if known is not None and known.standing in {"running", "replacing"} and known.why != why:
            self.states[name] = replace(known, why=why, at_ms=now_ms)
            self.untold.add(name)

    def ended_executor(self, title: str, why: str, *, now_ms: int) -> None:
        """Count an executor that ended while only this pipeline was at work in it."""
        if (known := self.states.get(title)) is not None:
            self.ended[title] = EndedExecutors(self._ended(title).times + 1, now_ms)
            self._say(self.ours[title], replace(known, why=why, at_ms=now_ms))

    def lost(self, title: str, count: int, offsets: str, *, now_ms: int) -> None:
        """Count offsets that Kafka deleted before they were read; `offsets` are the latest."""
        if (known := self.states.get(title)) is not None:
            state = replace(known, lost=known.lost + count, lost_last=offsets, at_ms=now_ms)
            self._say(self.ours[title], state)

    def noted(self, title: str, note: str, *, now_ms: int) -> None:
        """Note which events the pipeline reads from an archive; an empty note means none."""
        known = self.states.get(title)
        if known is not None and known.note != note:
            self._say(self.ours[title], replace(known, note=note, at_ms=now_ms))

    def built(
        self, title: str, behind: int | None, *, now_ms: int, has_caught_up: bool = False
    ) -> None:
        """Set how many events a replacement is behind; None once it has taken over."""
        standing: Standing = "running" if behind is None else "replacing"
        known = self.states.get(title)
        if known is not None and known.standing in {"running", "replacing"}:
            state = replace(known, standing=standing, behind=behind, has_caught_up=has_caught_up)
            if state != known:
                self._say(self.ours[title], replace(state, at_ms=now_ms))

    def keeps(self, title: str, kept: int, kept_bytes: int, *, now_ms: int) -> None:
        """Set how many windows or keys the pipeline keeps, and their bytes."""
        known = self.states.get(title)
        if known is not None and (known.kept, known.kept_bytes) != (kept, kept_bytes):
            state = replace(known, kept=kept, kept_bytes=kept_bytes, at_ms=now_ms)
            self._say(self.ours[title], state)

    def by_lane(self) -> dict[str, Pipeline]:
        """The running documents by their lanes."""
        return {pipeline.lane_id: pipeline for pipeline in self.running.values()}

    def _is_judged(self, pipeline: Pipeline) -> bool:
        """Whether the document is judged, or being judged."""
        known = self.states.get(pipeline.title)
        return known is not None and known.fingerprint == pipeline.fingerprint

    def _ended(self, title: str) -> EndedExecutors:
        return self.ended.get(title) or self.ended_before(title)

    def _say(self, pipeline: Pipeline, state: PipelineState) -> None:
        times, at_ms = self._ended(pipeline.title)
        state = replace(state, executors_ended=times, executor_ended_at_ms=at_ms)
        self.states[pipeline.title] = state
        self.untold.add(pipeline.title)
