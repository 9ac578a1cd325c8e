"""Builds the documentation as a site, into build/docs/site; a broken link is an error.

Its pages are README.md, everything in docs/, and the files that they link to. They keep their
paths, so that links work as in a checkout. The page of the API is made here.
`python docs/build_site.py` builds the site; `python docs/build_site.py serve` also serves it.
"""  # noqa: INP001 - docs/ is not a package

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.app import described
from gateway.http.api_page import sections
from gateway.settings import Settings

ROOT = Path(__file__).parents[1]
BUILT = Path("build", "docs")
# Pages that list all others of their folder, and their lists' names in the navigation.
_INDEXES = {"docs/runbooks/README.md": "Runbooks", "docs/adr/README.md": "Decisions"}
_KINDS = (".md", ".png", ".svg")
_LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
_API = """\
# The API, path by path

This page is written from the gateway's OpenAPI document. A gateway shows the same page at `/docs`,
and the document at `/openapi.json`. [The ingest API](api.md) explains how to send events.

{parts}
"""


def gather(root: Path) -> None:
    """Copy the site's pages and the builder's settings into their folder below a root."""
    pages = root / BUILT / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for path in _linked():
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, pages / path)
    parts = "\n\n".join(
        f"## {each.title} {{ #{each.id} }}\n\n<div>{each.markup}</div>"
        for each in sections(described(Settings()))
    )
    (pages / "docs" / "http-api.md").write_text(_API.format(parts=parts), encoding="utf-8")
    (root / BUILT / "zensical.toml").write_text(configuration(), encoding="utf-8")


def configuration() -> str:
    """Return the builder's settings, with the pages that an index lists below that index."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for index, name in _INDEXES.items():
        links = dict.fromkeys(_LINK.findall((ROOT / index).read_text(encoding="utf-8")))
        listed = [f"{Path(index).parent}/{link}" for link in links if "/" not in link]
        text = text.replace(f'"{index}"', f'{{ "{name}" = {json.dumps([index, *listed])} }}')
    return text


def render(folder: Path, command: str = "build") -> int:
    """Make HTML of a folder's pages with its zensical.toml; return the builder's exit status."""
    strictly = ("--strict", "--clean") if command == "build" else ()
    program = Path(sys.executable).with_name("zensical")
    config = folder / "zensical.toml"
    ended = subprocess.run([program, command, *strictly, "--config-file", config], check=False)
    return ended.returncode


def main(arguments: Sequence[str]) -> int:
    gather(ROOT)
    built = ROOT / BUILT
    return render(built) or ("serve" in arguments and render(built, "serve"))


def _linked() -> Iterator[Path]:
    """Yield the files of the site, relative to the root: README.md, docs/, and linked files."""
    found = [path for path in sorted((ROOT / "docs").rglob("*")) if path.suffix in _KINDS]
    found.insert(0, ROOT / "README.md")
    for path in found:
        yield path.relative_to(ROOT)
        if path.suffix == ".md":
            targets = ((path.parent / link).resolve() for link in _LINK.findall(path.read_text()))
            found += (each for each in targets if each.is_file() and each not in found)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
