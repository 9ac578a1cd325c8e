"""Says which of the events that a new pipeline is to begin with Kafka has deleted.

The pipeline reads archived events from the archive, and otherwise begins with the oldest event
there is. A request for earlier ones learns so at once, and how to get them still.
"""

from gateway.control.stores.changes import ControlStore
from gateway.problems import Problem
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.times import rfc3339


async def late_start(store: ControlStore, configuration: Configuration, pipeline: Pipeline) -> str:
    """Return a text for people; empty if nothing is missing, or if Kafka cannot be asked now."""
    source = pipeline.source
    if isinstance(source.start, str):
        return ""
    try:
        begins_ms = await store.begins_ms(source.stream)
    except Problem:
        # The pipeline is stored all the same, and begins where it can.
        return ""
    later = [begin_ms for begin_ms in begins_ms if begin_ms > source.start]
    if not later:
        return ""
    start, begin = rfc3339(source.start), rfc3339(max(later))
    text = (
        f"Kafka has deleted events of {source.stream}: {len(later)} of its Kafka partitions begin"
        f" later than {start}, the last of them at {begin}."
    )
    if archives := configuration.archives_for(pipeline):
        names = " and ".join(each.name for each in archives)
        return f"{text} It reads from the archive {names} since {start}, as far as that has it."
    text = f"{text} Earlier events are not read."
    if pipeline.window is not None:
        return f"{text} A window would miss restored events: they reach Kafka too late."
    earlier = f"{source.stream}-earlier"
    return (
        f"{text} If an archive has it, have it in a stream of its own, and a pipeline of another"
        f" name read that one: `hifi streams put {earlier}`, `hifi restore --stream {source.stream}"
        f" --from {start} --to {begin} --to-stream {earlier}`."
    )
