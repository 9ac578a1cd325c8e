"""Finds out whether a pipeline would close a cycle of streams, where events would go in circles."""

from collections.abc import Iterable

from shared.config.pipeline import Pipeline


def cycle_through(pipeline: Pipeline, others: Iterable[Pipeline]) -> tuple[str, ...]:
    """Return the streams of a cycle that a pipeline closes, from its source to its source.

    Outputs with `repost` may close a cycle on purpose: a pipeline skips events that it has seen.
    """
    leads_to: dict[str, list[str]] = {}
    for each in (pipeline, *others):
        outputs = [output.stream for output in each.streams_to if not output.repost]
        leads_to.setdefault(each.source.stream, []).extend(outputs)
    source = pipeline.source.stream
    came_from: dict[str, str] = {}
    # Its own outputs first: if there are several cycles, report the one through itself.
    waiting = [output.stream for output in pipeline.streams_to if not output.repost]
    came_from.update(dict.fromkeys(waiting, source))
    while waiting and source not in came_from:
        at = waiting.pop(0)
        for following in leads_to.get(at, ()):
            if following not in came_from:
                came_from[following] = at
                waiting.append(following)
    if source not in came_from:
        return ()
    path = [source, came_from[source]]
    while path[-1] != source:
        path.append(came_from[path[-1]])
    return tuple(reversed(path))
