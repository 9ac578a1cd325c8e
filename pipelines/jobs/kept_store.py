"""Reads what a pipeline keeps, from the topic in which whoever had it before has stored it."""

from pipelines.jobs.kept_lanes import Kept, kept_for
from pipelines.windows.change import HEAD, shape_of_head
from shared.config.pipeline import Pipeline
from shared.event.topics import kept_spec
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin


class KeptLostError(Exception):
    """What a pipeline keeps is not there, or is that of another window; the text says which."""


async def read_kept(bootstrap_servers: str, pipeline: Pipeline, *, is_new: bool) -> Kept | None:
    """Asked for once nobody else writes it any more; None if it keeps nothing.

    One that is new begins with nothing. Any other that finds nothing would count from the middle
    of its windows, and overwrite what is right with what is not.
    """
    kept = kept_for(pipeline)
    if kept is None:
        return None
    spec = kept_spec(pipeline.name, pipeline.generation)
    async with topic_admin(bootstrap_servers) as admin:
        await admin.create_missing([spec])
    shape = None
    async with open_reader(bootstrap_servers) as reader:
        async for record in reader.range(await reader.spans([spec.name])).records():
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
