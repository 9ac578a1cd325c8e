"""The runbooks as pages of the console; only their names if the docs are not installed."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from console.parts.markup import Child, tag
from console.parts.pieces import code, table
from shared.proof.overview import StreamVerdict

PATH = "/runbooks"
# The page that says which runbook to use when.
INDEX = "README"
# The runbook for each verdict.
OF_VERDICT: Mapping[StreamVerdict, str] = {
    StreamVerdict.LOSING: "HifiLoss",
    StreamVerdict.STALLED: "HifiStreamStopped",
    StreamVerdict.DISABLED: "HifiDestinationHeld",
    StreamVerdict.REJECTING: "HifiDestinationRejecting",
    StreamVerdict.FAILING: "HifiDestinationFailing",
    StreamVerdict.HELD: "HifiDestinationHeld",
    StreamVerdict.CANNOT_TELL: "HifiCannotTell",
    StreamVerdict.RATE_LIMITED: "HifiDestinationRateLimited",
    StreamVerdict.SLOW: "HifiDestinationSlow",
}
# The runbooks of pipelines, where these differ.
OF_PIPELINE: Mapping[StreamVerdict, str] = {
    StreamVerdict.STALLED: "HifiPipelineStopped",
    StreamVerdict.DISABLED: "HifiPipelineRefused",
    StreamVerdict.REJECTING: "HifiPipelineDeadLetters",
    StreamVerdict.SLOW: "HifiPipelineBehind",
}
_FOLDER = Path(__file__).parents[2] / "docs" / "runbooks"
_ITEM = re.compile(r"(?:-|\d+\.) ")
_PART = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\(([^)\s]+)\)")


@cache
def runbooks() -> Mapping[str, str]:
    """Return the texts of the runbooks by name; none if the docs are not installed."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.md"))}


def runbook_link(name: str, says: str = "") -> Child:
    """Return a link to a runbook, or the name of its file if the docs are not installed."""
    if name not in runbooks():
        return code(f"docs/runbooks/{name}.md")
    return tag("a", says or name, href=PATH if name == INDEX else f"{PATH}/{name}")


def shown(name: str) -> list[Child]:
    """Return a runbook as markup: headings, paragraphs, lists and tables."""
    heading = name
    parts: list[Child] = []
    for block in re.split(r"\n{2,}", runbooks()[name].strip()):
        if block.startswith("#"):
            signs, _, heading = block.partition(" ")
            parts.append(tag(f"h{len(signs)}", heading))
        elif block.startswith("|"):
            heads, _, *rows = ([*map(_inline, _cells(line))] for line in block.splitlines())
            parts.append(table([str(head) for head in heads], rows, caption=heading))
        elif _ITEM.match(block):
            items = re.split(r"\n(?=-|\d+\. )", block)
            entries = [tag("li", _inline(_ITEM.sub("", item, count=1))) for item in items]
            parts.append(tag("ol" if block[0].isdigit() else "ul", entries))
        else:
            parts.append(tag("p", _inline(block)))
    return parts


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _inline(text: str) -> list[Child]:
    """Mark up code, emphasis and links to other runbooks; of other links, keep the label."""
    content: list[Child] = []
    at = 0
    for match in _PART.finditer(text):
        literal, strong, stressed, label, target = match.groups()
        content.append(text[at : match.start()])
        if literal:
            content.append(code(literal))
        elif label:
            path = target.removesuffix(".md")
            content.append(runbook_link(path, label) if path in runbooks() else label)
        else:
            content.append(tag("strong" if strong else "em", strong or stressed))
        at = match.end()
    return [*content, text[at:]]
