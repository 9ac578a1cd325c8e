"""Builds the documentation as a site, into build/docs/site; a link that leads nowhere is an error.

Its pages are the repository's own, each in its place, so that links are as they are in a checkout:
README.md, everything in docs/, and what they link to. The page of the API is made here.
`python docs/build_site.py` builds, `python docs/build_site.py serve` shows it as well.
"""  # noqa: INP001 - documents are no package

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
PAGES = Path("build", "docs", "pages")
_KINDS = (".md", ".png", ".svg")
_LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
_API = """\
# The API, path by path

Written from the gateway's own OpenAPI document; a gateway shows the same at `/docs`, and the
document at `/openapi.json`. How to send is in [the ingest API](api.md).

{parts}
"""


def gather(root: Path) -> None:
    """Put what the site is made of into its folder of a root."""
    pages = root / PAGES
    shutil.rmtree(pages, ignore_errors=True)
    for path in _linked():
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, pages / path)
    parts = "\n\n".join(
        f"## {each.title} {{ #{each.id} }}\n\n<div>{each.markup}</div>"
        for each in sections(described(Settings()))
    )
    (pages / "docs" / "http-api.md").write_text(_API.format(parts=parts), encoding="utf-8")


def render(root: Path, command: str = "build") -> int:
    """Make HTML of the gathered pages, as zensical.toml says; return the builder's exit status."""
    strictly = ("--strict", "--clean") if command == "build" else ()
    program = Path(sys.executable).with_name("zensical")
    config = root / "zensical.toml"
    ended = subprocess.run([program, command, *strictly, "--config-file", config], check=False)
    return ended.returncode


def main(arguments: Sequence[str]) -> int:
    gather(ROOT)
    return render(ROOT) or ("serve" in arguments and render(ROOT, "serve"))


def _linked() -> Iterator[Path]:
    """The files of the site, from the root: those of docs/, and what links lead to from there."""
    found = [path for path in sorted((ROOT / "docs").rglob("*")) if path.suffix in _KINDS]
    found.insert(0, ROOT / "README.md")
    for path in found:
        yield path.relative_to(ROOT)
        if path.suffix == ".md":
            targets = ((path.parent / link).resolve() for link in _LINK.findall(path.read_text()))
            found += (each for each in targets if each.is_file() and each not in found)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
