"""Every rule of the house finds its violations, and reports file, line and rule."""

import pytest

from tests.tidy import house_rules
from tests.tidy.house_rules import FILE_LINES_MAX, FUNCTION_LINES_MAX

DOC = '"""Does something."""\n'
LONG_BODY = "    x = 1\n" * FUNCTION_LINES_MAX
LONG_DOC = '    """One.\n' + "    two\n" * 99 + '    """\n'

# A file that breaks a rule, and the finding about it.
BROKEN = [
    ("shared/utils.py", DOC, "shared/utils.py:1: 'utils' names no concept"),
    ("shared/types/x.py", DOC, "shared/types/x.py:1: 'types' names no concept"),
    ("a.py", "x = 1\n", "a.py:1: the module starts with a docstring"),
    ("a.py", '"""todo"""\n', "a.py:1: the module starts with a docstring"),
    ("a.py", "", "a.py:1: the module starts with a docstring"),
    ("a.py", '"""Decides something."""\n', "a.py:1: only shared/retry/decision.py decides"),
    ("a.py", DOC + "x = 1\n" * FILE_LINES_MAX, "a.py:401: a file has at most 400 lines"),
    ("a.py", DOC + "#" * 101, "a.py:2: a line has at most 100 characters"),
    ("a.py", DOC + "#" * 101 + "  # noqa: E501", "a.py:2: a line has at most 100 characters"),
    ("a.py", DOC + "def f():\n" + LONG_BODY, "a.py:2: f has 61 lines"),
    ("a.py", DOC + "class A:\n  async def f():\n" + LONG_BODY, "a.py:3: f has 61 lines"),
    ("a.py", DOC + "def f():\n" + LONG_DOC + LONG_BODY, "a.py:2: f has 61 lines"),
    ("a.py", DOC + "class A:\n    def __f(self): ...", "a.py:3: __f is private with one"),
    ("a.py", DOC + "self.__x = 1", "a.py:2: __x is private with one"),
    ("a.py", DOC + "p.setattr(time, '" + "monotonic', f)", "a.py:2: replace the name `time`"),
    ("a.py", DOC + "p.setattr('time." + "monotonic', f)", "a.py:2: replace the name `time`"),
]


@pytest.mark.parametrize(("path", "text", "said"), BROKEN, ids=lambda value: value[:40])
def test_a_file_that_breaks_a_rule_is_found(path: str, text: str, said: str) -> None:
    assert any(finding.startswith(said) for finding in house_rules.findings(path, text))


def test_a_file_that_keeps_the_rules_is_left_alone() -> None:
    body = "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    pragma = "x = 1" + " " * 60 + "# noqa: FBT001 - a row of the table that is quite long\n"
    text = DOC + pragma + "def f():\n" + LONG_DOC + body + "def __init__(self): ...\n"
    assert list(house_rules.findings("shared/event/envelope.py", text)) == []


IMPURE = [
    ("import os", "a.py:1: the core has no clock"),
    ("import os.path", "a.py:1: the core has no clock"),
    ("from time import monotonic", "a.py:1: the core has no clock"),
    ("import urllib.request", "a.py:1: the core has no clock"),
    ("from urllib import request", "a.py:1: the core has no clock"),
    ("def f():\n    import random", "a.py:2: the core has no clock"),
    ("import httpx", "a.py:1: the core imports the standard library and few"),
    ("from shared import runtime", "a.py:1: the core imports the standard library and few"),
    ("from shared.runtime.clock import now_ms", "a.py:1: the core imports the standard library"),
    ("from . import envelope", "a.py:1: the core imports the standard library and few"),
    ("from datetime import datetime\ndatetime.now()", "a.py:2: the core touches nothing outside"),
    ("open('x')", "a.py:1: the core touches nothing outside: open()"),
    ("print(1)", "a.py:1: the core touches nothing outside: print()"),
]


@pytest.mark.parametrize(("text", "said"), IMPURE)
def test_an_impure_core_module_is_found(text: str, said: str) -> None:
    found = list(house_rules.is_pure("a.py", text))
    assert len(found) == 1
    assert found[0].startswith(said)


def test_a_pure_core_module_is_left_alone() -> None:
    text = (
        "import json\nimport msgspec\nfrom urllib.parse import urlsplit\nimport shared.event\nf()"
    )
    assert list(house_rules.is_pure("a.py", text)) == []


@pytest.mark.parametrize(
    "text",
    ["import os\nos.environ['X']", "import os\nos.getenv('X')", "\nfrom os import environ"],
)
def test_reading_the_environment_is_found(text: str) -> None:
    found = list(house_rules.reads_no_environment("a.py", text))
    assert found == ["a.py:2: only settings files read the environment"]


@pytest.mark.parametrize(
    "text", ['x = "hifi.stream.orders"', 'x = f"hifi.retry.{t}"', 'x = b"hifi.dead"']
)
def test_a_topic_spelt_outside_topics_is_found(text: str) -> None:
    found = list(house_rules.spells_no_topic("a.py", text))
    assert found[0].startswith("a.py:1: only shared/event/topics.py")


@pytest.mark.parametrize(
    "text", ['"""Reads hifi.dead."""', 'x = "hifi.event"', "x = 1  # hifi.dead"]
)
def test_speaking_of_a_topic_is_not_spelling_it(text: str) -> None:
    assert list(house_rules.spells_no_topic("a.py", text)) == []


@pytest.mark.parametrize("text", ['x = "hifi_gateway_up"', 'x = f"hifi_{node}_lane_up"'])
def test_a_metric_spelt_outside_the_catalogue_is_found(text: str) -> None:
    found = list(house_rules.spells_no_metric("a.py", text, except_for={}))
    assert found[0].startswith("a.py:1: only shared/metric_names.py spells a metric")


def test_a_named_exception_is_no_metric() -> None:
    text = 'x = "hifi_due_gate"'
    assert list(house_rules.spells_no_metric("a.py", text, except_for={"hifi_due_gate": ""})) == []


def test_a_load_test_that_looks_inside_is_found() -> None:
    packages = frozenset({"shared", "gateway"})
    text = "import shared.proof.balance\nfrom gateway.app import create_app"
    found = list(house_rules.imports_only_shared("a.py", text, packages=packages))
    assert [finding.partition(": ")[0] for finding in found] == ["a.py:2"]


@pytest.mark.parametrize("text", ["cd /root/hifi", "x = '/work/shop'", "(/home/ann/x)"])
def test_a_path_of_a_machine_is_found(text: str) -> None:
    found = list(house_rules.names_no_machine("README.md", "\n" + text))
    assert found[0].startswith("README.md:2: no path of somebody's machine")


@pytest.mark.parametrize("text", ["spark/work/x", "$HOME/work/x", "framework/", "https://a.b/root"])
def test_a_path_that_is_not_of_a_machine_is_left_alone(text: str) -> None:
    assert list(house_rules.names_no_machine("README.md", text)) == []


def test_a_page_with_another_name_than_its_file_is_found() -> None:
    text = 'PATH = "/dead/letters"\n\n\nasync def letters_page() -> None: ...\n'
    assert list(house_rules.names_another_page("pages/dead_page.py", text)) == [
        "it has no function dead_page",
        "it serves /dead/letters",
    ]
    right = text.replace("letters_page", "dead_letters_page")
    assert list(house_rules.names_another_page("pages/dead_letters_page.py", right)) == []


def test_the_streams_of_a_module_of_tests_are_found() -> None:
    text = (
        """S = "a"\nhifi.add(Destination(S, "to"))\nx(stream="b")\nhifi.post("c", [], stream=y)"""
    )
    assert house_rules.streams_used(text) == {"a", "b", "c"}


def test_an_import_is_no_use_of_a_name() -> None:
    assert house_rules.names_used("from a import B, C\nm.counter(B)\nx.D") == {
        "B",
        "D",
        "m",
        "x",
        "counter",
    }
