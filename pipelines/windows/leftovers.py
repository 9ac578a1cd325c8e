"""Finds topics that pipelines have left behind and that nobody needs any more. Pure.

A topic is left over only if the configuration says so: an unknown topic may be newer than our
configuration.
"""

from collections.abc import Callable, Collection

from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.event.topics import KEPT_PREFIX, TABLE_PREFIX, name_and_generation

# Whether a pipeline no longer needs the topics of the one that it has replaced.
IsLive = Callable[[Pipeline], bool]


def with_leftovers(configuration: Configuration) -> set[str]:
    """The pipelines that may have left topics behind."""
    removed = {each.name for each in configuration.removed_pipelines.values() if each.keeps}
    later = {each.name for each in configuration.pipelines.values() if each.generation > 1}
    return removed | later | configuration.replacements.keys()


def left_over(
    topic: str, configuration: Configuration, names: Collection[str], is_live: IsLive
) -> str | None:
    """Return the pipeline of a topic, if it is one of these and no longer needs the topic."""
    if topic.startswith(KEPT_PREFIX):
        name, generation = name_and_generation(topic.removeprefix(KEPT_PREFIX))
        is_left = name in names and _is_kept_in_vain(configuration, name, generation, is_live)
        return name if is_left else None
    if not topic.startswith(TABLE_PREFIX):
        return None
    name, generation = name_and_generation(topic.removeprefix(TABLE_PREFIX))
    table = configuration.tables.get(name)
    writer = configuration.pipelines.get(table.written_by or "") if table else None
    if table is None or writer is None or writer.name not in names or not generation:
        return None
    if generation < table.generation:
        return writer.name if is_live(writer) else None
    built = configuration.replacements.get(writer.name)
    newest = built.tables.get(name, 0) if built else 0
    is_given_up = built is not None and built.document is None
    is_left = table.generation < generation < newest + is_given_up
    return writer.name if is_left else None


def _is_kept_in_vain(
    configuration: Configuration, name: str, generation: int, is_live: IsLive
) -> bool:
    if not generation:
        return False
    if (removed := configuration.removed_pipelines.get(name)) is not None:
        return removed.keeps and generation <= removed.generation
    if (current := configuration.pipelines.get(name)) is None:
        return False
    if generation < current.generation:
        return is_live(current)
    built = configuration.replacements.get(name)
    if built is None:
        return False
    return current.generation < generation < built.generation + (built.document is None)
