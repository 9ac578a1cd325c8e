"""Warns the author of a new pipeline if Kafka has deleted events at its start.

The pipeline reads archived events from the archive, and otherwise begins with the oldest event in
Kafka. If it should begin earlier, the answer to its PUT says how to get the earlier events.
"""

from gateway.control.stores.changes import ControlStore
from gateway.problems import Problem
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.times import rfc3339


async def late_start(store: ControlStore, configuration: Configuration, pipeline: Pipeline) -> str:
    """Return a warning for people; empty if no event is missing or Kafka does not answer."""
    source = pipeline.source
    if isinstance(source.start, str):
        return ""
    try:
        begins_ms = await store.begins_ms(source.stream)
    except Problem:
        # The pipeline is stored all the same, and begins with the oldest event.
        return ""
    later = [begin_ms for begin_ms in begins_ms if begin_ms > source.start]
    if not later:
        return ""
    start, begin = rfc3339(source.start), rfc3339(max(later))
    text = (
        f"Kafka has deleted events of {source.stream}: {len(later)} of its Kafka partitions begin"
        f" after {start}, the last of them at {begin}."
    )
    if archives := configuration.archives_for(pipeline):
        names = " and ".join(each.name for each in archives)
        return f"{text} It reads the archive {names} from {start} on, as far as that has events."
    text = f"{text} The pipeline does not read earlier events."
    if pipeline.window is not None:
        return f"{text} A window would miss restored events: they reach Kafka too late."
    earlier = f"{source.stream}-earlier"
    return (
        f"{text} If an archive has them, restore them to a stream of their own, and let another"
        f" pipeline read it: `hifi streams put {earlier}`, `hifi restore --stream {source.stream}"
        f" --from {start} --to {begin} --to-stream {earlier}`."
    )
