"""Cuts the suite into parts that run side by side, each with processes of its own.

A test spends much of its time waiting: for a process to start, a lease to end, an event to be due.
A test's part depends only on the test, so that all runs are alike.
"""

from collections.abc import Collection
from enum import StrEnum
from pathlib import Path

import pytest

_COMPONENT = Path(__file__).parents[2] / "component"


class Part(StrEnum):
    # Tests that share one whole Hifi.
    STACK = "stack"
    # Tests that start brokers, commands and Spark sessions of their own.
    BROKERS = "brokers"
    # One service each, with fakes.
    COMPONENTS = "components"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=list(Part), help="the part of the suite to run")


def part_of(path: Path, fixtures: Collection[str]) -> Part:
    if "hifi_stack" in fixtures:
        return Part.STACK
    is_alone = _COMPONENT in path.parents and "jars_cache" not in fixtures
    return Part.COMPONENTS if is_alone else Part.BROKERS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    if part is None:
        return
    mine: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        fixtures = getattr(item, "fixturenames", [])
        (mine if part_of(item.path, fixtures) == part else others).append(item)
    items[:] = mine
    config.hook.pytest_deselected(items=others)
