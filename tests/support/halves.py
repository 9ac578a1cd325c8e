"""Cuts the suite in two that run side by side, each with a broker and Spark sessions of its own.

Most of its time a test waits: for a process to start, a lease to end, an event to be due.
Which test is in which half depends on nothing but the test, so that a run is like the last one.
"""

from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_SECOND = {
    *(
        _TESTS / "component" / room
        for room in ("chaos", "clients", "delivery", "deploy", "loadtests")
    ),
    *(_TESTS / kind for kind in ("contract", "integration")),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--half", type=int, choices=[1, 2], help="one of two that make the suite")


def half_of(path: Path, fixtures: list[str]) -> int:
    """The second has what starts commands and brokers, but for those that share one Hifi.

    So much else is there that both take as long.
    """
    return 1 if "hifi_stack" in fixtures or _SECOND.isdisjoint(path.parents) else 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    half = config.getoption("--half")
    if half is None:
        return
    mine: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        fixtures = getattr(item, "fixturenames", [])
        (mine if half_of(item.path, fixtures) == half else others).append(item)
    items[:] = mine
    config.hook.pytest_deselected(items=others)
