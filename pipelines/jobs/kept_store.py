"""Reads what a pipeline keeps, as whoever had it has stored it; deletes what nobody needs."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from pipelines.jobs.kept_lanes import Kept, kept_for
from pipelines.windows.change import HEAD, shape_of_head
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.topics import KEPT_PREFIX, pipeline_of_kept
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin

log = structlog.get_logger()


class KeptLostError(Exception):
    """What a pipeline keeps is not there, or is that of another window; the text says which."""


async def read_kept(bootstrap_servers: str, pipeline: Pipeline, *, is_new: bool) -> Kept | None:
    """Asked for once nobody else writes it any more; None if it keeps nothing.

    One that is new begins with nothing. Any other that finds nothing would count from the middle
    of its windows, and overwrite what is right with what is not.
    """
    kept, spec = kept_for(pipeline), pipeline.kept_spec
    if kept is None or spec is None:
        return None
    shape = None
    async with open_reader(bootstrap_servers) as reader:
        if not (spans := await reader.spans([spec.name])):
            raise KeptLostError(
                f"there is no topic {spec.name}: remove the pipeline, and put it again"
            )
        async for record in reader.range(spans).records():
            if record.key == HEAD:
                shape = shape_of_head(record.value)
            # Without a value it takes away.
            kept.read(record.key or b"", record.value or None)
    if shape is None and not is_new:
        raise KeptLostError(
            "what it keeps is lost, or it has read on without keeping anything: put it under"
            " another name, from where it is to count (`start`)"
        )
    if shape is not None and shape != pipeline.kept_shape:
        raise KeptLostError(
            "what it keeps is of another window or key: put it under another name, from where it"
            " is to count (`start`)"
        )
    return kept


@dataclass
class ForgottenTopics:
    """Deletes what pipelines of ours kept that are gone, or made anew."""

    bootstrap_servers: str
    is_ours: Callable[[str], bool]
    # Up to which generation of each there is nothing any more.
    _done: dict[str, int] = field(default_factory=dict)

    async def forget_gone(self, configuration: Configuration, *, busy: Collection[str]) -> None:
        """Not of those that are busy: what is under way would wait for a topic that is gone."""
        gone = {
            name: until
            for name, until in _gone(configuration)
            if until > self._done.get(name, 0) and self.is_ours(name) and name not in busy
        }
        if not gone:
            return
        async with topic_admin(self.bootstrap_servers) as admin:
            kept = (topic for topic in await admin.names() if topic.startswith(KEPT_PREFIX))
            topics = [topic for topic in kept if _is_gone(topic, gone)]
            await admin.delete(topics)
        self._done |= gone
        for topic in sorted(topics):
            log.info("pipeline.kept_deleted", topic=topic)


def _gone(configuration: Configuration) -> Iterator[tuple[str, int]]:
    """Up to which generation what was kept of a pipeline is of no use, where that is known."""
    for removed in configuration.removed_pipelines.values():
        if removed.keeps:
            yield removed.name, removed.generation
    for pipeline in configuration.pipelines.values():
        if pipeline.generation > 1:
            yield pipeline.name, pipeline.generation - 1


def _is_gone(topic: str, gone: Mapping[str, int]) -> bool:
    name, generation = pipeline_of_kept(topic)
    return 0 < generation <= gone.get(name, 0)
