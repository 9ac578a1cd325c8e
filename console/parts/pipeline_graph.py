"""Draws a pipeline from top to bottom: the stream it reads, its steps, and its outputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.parts.charts import drawing
from console.parts.markup import NOTHING, Safe, tag
from shared.config.pipeline import Pipeline

_WIDTH, _BOX, _ROW, _FORK = 1040, 34, 52, 48
# Characters in a box of that width; its title and the document have the whole text.
_CHARS_MAX = 116


@dataclass(frozen=True, slots=True)
class _Box:
    kind: str
    says: str
    href: str = ""


def pipeline_graph(pipeline: Pipeline) -> Safe:
    """Draw a pipeline, with a description in words for people who cannot see the drawing."""
    way = [
        _Box("from", pipeline.source.stream, f"/streams/{pipeline.source.stream}"),
        *(
            _step(number, step)
            for number, step in enumerate(pipeline.to_fields().get("steps", ()), 1)
        ),
    ]
    ends = [_output(output) for output in pipeline.to_fields()["to"]]
    drawn: list[Safe] = []
    for row, box in enumerate(way):
        y = row * _ROW
        if row:
            drawn.append(_line(f"M 24 {y - _ROW + _BOX} V {y}"))
        drawn.append(_drawn(box, 0, y))
    fork = (len(way) - 1) * _ROW + _BOX
    for row, box in enumerate(ends, start=len(way)):
        y = row * _ROW
        drawn.append(_line(f"M 24 {fork} V {y + _BOX // 2} H {_FORK}"))
        drawn.append(_drawn(box, _FORK, y))
    height = (len(way) + len(ends)) * _ROW - _ROW + _BOX
    words = "; ".join(f"{box.kind} {box.says}" for box in (*way, *ends))
    name = f"The steps of {pipeline.name}"
    view = f"-1 -1 {_WIDTH + 2} {height + 2}"
    made = drawing(name, words, view, "graph", drawn, has_links=True)
    # Focusable, so that a keyboard can scroll it too.
    return tag("div", made, class_="scroll", role="region", aria_label=name, tabindex="0")


def _step(nth: int, step: Mapping[str, Any]) -> _Box:
    ((kind, value), *more) = step.items()
    return _Box(f"{nth} {kind}", _text(value, dict(more)))


def _output(output: Mapping[str, Any]) -> _Box:
    ((kind, value), *more) = output.items()
    if kind == "dead":
        return _Box("to", f"dead letters{_more(dict(more))}")
    href = f"/streams/{value}" if kind == "stream" else ""
    return _Box(f"to {kind}", _text(value, dict(more)), href)


def _text(value: Any, more: Mapping[str, Any]) -> str:
    if isinstance(value, Mapping):
        filled = {name: each for name, each in value.items() if each not in (None, [])}
        value = ", ".join(f"{name} = {_text(each, {})}" for name, each in filled.items())
    return f"{value}{_more(more)}"


def _more(more: Mapping[str, Any]) -> str:
    words = [f"{name} {_text(value, {})}" for name, value in more.items() if value]
    return f", {', '.join(words)}" if words else ""


def _drawn(box: _Box, x: int, y: int) -> Safe:
    whole = f"{box.kind} {box.says}"
    room = _CHARS_MAX - (len(box.kind) + x // 8)
    says = box.says if len(box.says) <= room else f"{box.says[: room - 1]}…"
    inside = (
        tag("title", whole),
        tag("rect", x=x, y=y, width=_WIDTH - x, height=_BOX, rx=6),
        tag("text", tag("tspan", box.kind, class_="kind"), f" {says}", x=x + 12, y=y + 22),
    )
    if box.href:
        return tag("a", *inside, href=box.href, class_="box")
    return tag("g", *inside, class_="box")


def _line(path: str) -> Safe:
    return tag("path", NOTHING, d=path, class_="way")
