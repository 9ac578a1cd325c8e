"""Finds out whether a pipeline would close a cycle of streams, in which events go round."""

from collections.abc import Iterable

from shared.config.pipeline import Pipeline


def cycle_through(pipeline: Pipeline, others: Iterable[Pipeline]) -> tuple[str, ...]:
    """The streams of a cycle that it closes, from its source to its source; empty if none.

    Outputs that post events again may close a cycle on purpose: a pipeline that has seen an event
    does not take it a second time.
    """
    leads_to: dict[str, list[str]] = {}
    for each in (pipeline, *others):
        outputs = [output.stream for output in each.streams_to if not output.repost]
        leads_to.setdefault(each.source.stream, []).extend(outputs)
    source = pipeline.source.stream
    came_from: dict[str, str] = {}
    # Its own outputs first: of several cycles, report the one through itself.
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
