"""Reads a pipeline's kept state as its last owner stored it; deletes state that nobody needs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import structlog

from pipelines.jobs.lane_states import Kept, LaneStates, kept_for
from pipelines.windows.change import ALL_QUIET_MS, HEAD, POSITION, Head, KeptPosition, head_of
from pipelines.windows.leftovers import left_over, with_leftovers
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.topics import KEPT_PREFIX
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin

log = structlog.get_logger()

# The first wait after a configuration change. It doubles after each check, up to the second number.
_SOON_S, _LOOK_S_MAX = 1.0, 60.0
# By then, readers of a table have switched to its next generation, or no longer read the table.
_TABLE_KEPT_S = 600.0


class StateLostError(Exception):
    """A pipeline's kept state is missing, or belongs to another window; the text says which."""


class StoredState(NamedTuple):
    """A pipeline's kept state from the events before a position; empty if there is none."""

    kept: Kept
    position: KeptPosition


async def read_kept(
    bootstrap_servers: str, pipeline: Pipeline, *, is_new: bool, before: int = 0
) -> StoredState | None:
    """Read the kept state once nobody else writes it any more; None if the pipeline keeps none.

    A new pipeline begins with no state, and writes no results yet if it is to replace generation
    `before`. Any other pipeline without state would count from the middle of its windows, and
    overwrite correct results with wrong ones.
    """
    kept, spec = kept_for(pipeline), pipeline.kept_spec
    if kept is None or spec is None:
        return None
    if before:
        kept.head = replace(kept.head, quiet_ms=ALL_QUIET_MS, before=before)
    is_there, position = False, KeptPosition({})
    async with open_reader(bootstrap_servers) as reader:
        if not (spans := await reader.spans([spec.name])):
            raise StateLostError(f"there is no topic {spec.name}: {_ANEW}")
        async for record in reader.range(spans).records():
            if record.key == POSITION:
                position = KeptPosition.of(record.value)
                continue
            is_there |= record.key == HEAD
            # A record without a value deletes.
            kept.read(record.key or b"", record.value or None)
    if is_there and is_new and not position.offsets:
        raise StateLostError(f"the position of its kept state is lost: {_ANEW}")
    if not (is_there or is_new):
        raise StateLostError(
            f"its kept state is lost, or it has read events without keeping state: {_ANEW}"
        )
    if kept.head.shape != pipeline.kept_shape:
        raise StateLostError(f"its state belongs to another window or key: {_ANEW}")
    return StoredState(kept, position)


_ANEW = (
    "rebuild it with `hifi pipelines replace FILE --from 7d`, or create it under another name, with"
    " `start` set to where it should begin"
)


async def read_head(bootstrap_servers: str, topic: str) -> Head | None:
    """Read the head of the state that is kept in a topic; None if there is none."""
    head = None
    async with open_reader(bootstrap_servers) as reader:
        async for record in reader.range(await reader.spans([topic])).records():
            if record.key == HEAD:
                head = head_of(record.value)
    return head


@dataclass
class ForgottenTopics:
    """Deletes the state and tables of our pipelines that are gone, or were rebuilt."""

    bootstrap_servers: str
    is_ours: Callable[[str], bool]
    keepers: LaneStates
    _seen: Configuration | None = None
    _look_s: float = 0.0
    _pause_s: float = _SOON_S
    # Since when a table's topic has had no known reader.
    _since_s: dict[str, float] = field(default_factory=dict)

    async def forget_gone(self, configuration: Configuration, *, busy: set[str]) -> None:
        """Delete topics of pipelines that are not busy: a running job would wait for its topic."""
        now_s = time.monotonic()
        if configuration is not self._seen:
            self._seen, self._pause_s = configuration, _SOON_S
            self._look_s = min(self._look_s, now_s + _SOON_S)
        if now_s < self._look_s:
            return
        # A replacement takes over some time after the change, so look repeatedly.
        self._pause_s = min(2 * self._pause_s, _LOOK_S_MAX)
        self._look_s = now_s + self._pause_s
        names = {name for name in with_leftovers(configuration) if self.is_ours(name)}
        if not names:
            return
        async with topic_admin(self.bootstrap_servers) as admin:
            leftovers = {
                topic: name
                for topic in await admin.names()
                if (name := left_over(topic, configuration, names, self._is_live)) is not None
            }
            self._since_s = {topic: self._since_s.get(topic, now_s) for topic in leftovers}
            topics = sorted(
                topic
                for topic, name in leftovers.items()
                if name not in busy
                and (topic.startswith(KEPT_PREFIX) or now_s - self._since_s[topic] > _TABLE_KEPT_S)
            )
            await admin.delete(topics)
        if busy & set(leftovers.values()):
            self._look_s = now_s + _SOON_S
        for topic in topics:
            log.info("pipeline.topic_deleted", topic=topic)

    def _is_live(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline no longer needs the state of the one that it has replaced."""
        keeper = self.keepers.by_lane.get(pipeline.lane_id)
        return not pipeline.kept_shape or (keeper is not None and not keeper.kept.head.is_quiet)
