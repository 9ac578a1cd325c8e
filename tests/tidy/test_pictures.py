"""Pictures have texts, and drawings are readable in the dark and true to the code."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from shared.retry import lifecycle
from tests.tidy import sources

SVG = "{http://www.w3.org/2000/svg}"
DRAWINGS = sorted((sources.ROOT / "docs" / "pictures").glob("*.svg"))
# A shorter text is only the name of a picture.
WORDS_MIN = 5


def drawing(name: str) -> ET.Element:
    return ET.parse(sources.ROOT / "docs" / "pictures" / f"{name}.svg").getroot()


def test_every_picture_has_a_text_for_those_who_cannot_see_it() -> None:
    shown = {
        (path, picture): text
        for path, document in sources.tracked()
        if path.endswith(".md")
        for text, picture in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", document)
    }
    assert {picture.rpartition("/")[2] for _, picture in shown} >= {it.name for it in DRAWINGS}
    assert [where for where, text in shown.items() if len(text.split()) < WORDS_MIN] == []


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_can_be_read_in_light_and_in_the_dark(path: Path) -> None:
    text = path.read_text()
    root = ET.fromstring(text)
    card = root.find(f"{SVG}rect")
    assert root.findtext(f"{SVG}title")
    # A drawing has a background of its own, on whatever page it is shown.
    assert card is not None
    assert card.get("class") == "card"
    light, _, dark = root.findtext(f"{SVG}style", "").partition("prefers-color-scheme: dark")
    used = {name for each in root.iter() for name in each.get("class", "").split()}
    coloured = set(re.findall(r"\.([\w-]+) \{[^}]*(?:fill|stroke): #", light))
    assert coloured & used
    assert [name for name in coloured & used if f".{name} {{" not in dark] == []
    # Nothing is loaded from elsewhere.
    assert re.findall(r"(?:href|src|url\()[^#]*//", text) == []


def test_the_drawing_of_the_layers_has_those_of_the_contracts() -> None:
    pyproject = tomllib.loads((sources.ROOT / "pyproject.toml").read_text())
    contracts = {it["id"]: it for it in pyproject["tool"]["importlinter"]["contracts"]}
    layers = [*contracts["direction"]["layers"][:-1], *contracts["core-layers"]["layers"]]
    shown = [it.text for it in drawing("layers").iter() if "layer" in it.get("class", "").split()]
    assert shown == [layer.replace(" : ", " | ") for layer in layers]


def test_the_drawing_of_the_states_has_each_move_of_the_table() -> None:
    root = drawing("states")
    moves = {
        (state.value, to.value) for state, its in lifecycle.TABLE.items() for to in its.values()
    }
    assert sorted(_moves(root)) == sorted(moves)
    shown = [it.text for it in root.iter() if it.get("class") == "state"]
    assert sorted(map(str, shown)) == sorted(state.value for state in lifecycle.State)


def _moves(root: ET.Element) -> Iterator[tuple[str, str]]:
    for path in root.iter(f"{SVG}path"):
        if start := path.get("data-from"):
            yield start, path.get("data-to", "")
