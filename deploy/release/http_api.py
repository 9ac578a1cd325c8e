"""Checks the committed OpenAPI document: it is current, and no client of a release breaks."""

import json
from collections.abc import Iterator
from pathlib import Path

from deploy.release.api_breaks import api_breaks
from deploy.release.tools import ROOT, at_tag, tags
from gateway.app import described
from gateway.settings import Settings

DOCUMENT = "docs/openapi.json"


def current_document() -> str:
    """Return the text of the document that a gateway with keys serves."""
    whole = described(Settings(auth="keys"))
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def problems(root: Path = ROOT) -> Iterator[str]:
    path = root / DOCUMENT
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != current_document():
        yield f"{DOCUMENT} differs from the gateway's document: run `python docs/generate.py`"
    if text:
        yield from broken_since_release(json.loads(text), root)


def broken_since_release(document: dict[str, object], root: Path = ROOT) -> Iterator[str]:
    """Yield what breaks clients of the newest release that has a document."""
    for tag in tags(root):
        if before := at_tag(tag, DOCUMENT, root):
            breaks = api_breaks(json.loads(before), document)
            yield from (f"{DOCUMENT}: {each} since {tag}: put it back" for each in breaks)
            return
