"""The page about destinations lists every setting with the model's default and bounds."""

import re
from collections.abc import Iterator, Mapping
from math import log10
from typing import Any

from pydantic import TypeAdapter

from shared.config.destination import Destination
from tests.tidy import sources

PAGE = sources.ROOT / "docs" / "destinations.md"
# The address of a destination names these.
ADDRESS = {"stream", "name"}
HEAD = "| setting | default | bounds | effect |"
# From this number on, a power of ten is easier to read than its zeros.
POWERS_FROM = 10**9


def test_the_page_has_each_setting_with_its_default_and_bounds_and_no_other() -> None:
    described = [row for row in rows_of_the_model() if row[0] not in ADDRESS]
    assert list(rows_of_the_page()) == described


def test_each_setting_has_an_effect_on_the_page() -> None:
    assert [row for row in table() if not row[3]] == []


def rows_of_the_page() -> Iterator[tuple[str, str, str]]:
    for setting, default, bounds, _ in table():
        yield setting.strip("`"), default, bounds


def table() -> list[list[str]]:
    _, _, after = PAGE.read_text().partition(f"{HEAD}\n|---|---|---|---|\n")
    rows = after.split("\n\n")[0].splitlines()
    assert rows, f"docs/destinations.md has no table with the head {HEAD}"
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def rows_of_the_model() -> Iterator[tuple[str, str, str]]:
    schema = TypeAdapter(Destination).json_schema()
    for name, setting in schema["properties"].items():
        default = "needed" if name in schema["required"] else in_words(setting.get("default", {}))
        yield name, default, ", ".join(bounds(setting))


def in_words(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case int() | float():
            return figure(value)
        case _:
            return f"`{value}`"


def figure(value: float) -> str:
    if value >= POWERS_FROM and log10(value).is_integer():
        return f"1e{log10(value):.0f}"
    return f"{value:,.10g}"


def bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for choice in schema.get("anyOf", ()):
        yield from bounds(choice)
    yield from (f"`{word}`" for word in schema.get("enum", ()))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None:
        yield f"{figure(low)} or more" if high is None else f"{figure(low)} to {figure(high)}"
    most = schema.get("maxItems", schema.get("maxProperties"))
    if most is not None:
        yield f"up to {figure(most)}"
    if "minimum" in schema.get("items", {}):
        yield from bounds(schema["items"])
    if (longest := schema.get("additionalProperties", {}).get("maxLength")) is not None:
        yield f"values of up to {figure(longest)} characters"
