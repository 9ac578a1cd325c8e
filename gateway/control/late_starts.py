"""Says of a pipeline that is new what Kafka has deleted of that with which it is to begin.

What is in an archive is read from there, and else it begins with the oldest event that there is:
whoever asked for earlier ones is told so at once, and how they may still be had.
"""

from gateway.control.store import ControlStore
from gateway.problems import Problem
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.times import rfc3339


async def late_start(store: ControlStore, configuration: Configuration, pipeline: Pipeline) -> str:
    """For people; empty if it finds what it asks for, or if Kafka cannot be asked now."""
    source = pipeline.source
    if isinstance(source.start, str):
        return ""
    try:
        begins_ms = await store.begins_ms(source.stream)
    except Problem:
        # It is stored, and begins where it can.
        return ""
    later = [begin_ms for begin_ms in begins_ms if begin_ms > source.start]
    if not later:
        return ""
    start, begin = rfc3339(source.start), rfc3339(max(later))
    said = (
        f"Kafka has deleted events of {source.stream}: {len(later)} of its Kafka partitions begin"
        f" later than {start}, the last of them at {begin}."
    )
    if archives := configuration.archives_for(pipeline):
        names = " and ".join(each.name for each in archives)
        return f"{said} It reads from the archive {names} since {start}, as far as that has it."
    said = f"{said} What came before is not read."
    if pipeline.window is not None:
        return f"{said} By when Kafka gets it, what is put back is late for a window."
    earlier = f"{source.stream}-earlier"
    return (
        f"{said} If an archive has it, have it in a stream of its own, and a pipeline of another"
        f" name read that one: `hifi streams put {earlier}`, `hifi restore --stream {source.stream}"
        f" --from {start} --to {begin} --to-stream {earlier}`."
    )
