"""The documentation as a site: no link is broken, and pages load nothing from elsewhere."""

import re
import tomllib
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from tests.tidy import sources

pytestmark = pytest.mark.skipif(
    util.find_spec("zensical") is None, reason="what builds the site is not here (make docs)"
)


def builder() -> Any:
    spec = util.spec_from_file_location("build_site", sources.ROOT / "docs" / "build_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    build_site = builder()
    build_site.gather(root)
    built: Path = root / build_site.BUILT
    assert build_site.render(built) == 0, "a link is broken: `make docs` says which"
    return built / "site"


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    text = '[project]\nsite_name = "a"\ndocs_dir = "pages"\nsite_dir = "site"\n'
    (tmp_path / "zensical.toml").write_text(text)
    page = tmp_path / "pages" / "index.md"
    page.parent.mkdir()
    for broken in ("[a](gone.md)", "[a](index.md#gone)"):
        page.write_text(f"# A page\n\n{broken}\n")
        assert builder().render(tmp_path) != 0


def test_every_page_is_in_the_navigation_runbooks_and_decisions_too(site: Path) -> None:
    named = list(_pages(tomllib.loads(builder().configuration())["project"]["nav"]))
    pages = [path.relative_to(sources.ROOT) for path in (sources.ROOT / "docs").rglob("*.md")]
    assert {str(path) for path in pages} - set(named) == set()
    assert len(named) == len(set(named))
    page = (site / "docs" / "runbooks" / "HifiLoss.html").read_text()
    assert re.search(r'<a href="(./)?HifiClockSkew.html" class="md-nav__link', page)


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(each)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*")
    found = {str(path): loads.findall(text) for path, text in pages.items()}
    assert {path: tags for path, tags in found.items() if tags} == {}
    # The theme's own script would fetch the program that draws these.
    assert [path for path, text in pages.items() if re.search(r"class=[\"']?mermaid", text)] == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []


def test_the_api_is_in_it_and_is_found(site: Path) -> None:
    page = (site / "docs" / "http-api.html").read_text()
    assert "POST /v1/streams/{stream}/events" in page
    assert "quota_events" in page
    assert "dead-letters:redrive" in (site / "search.json").read_text()
