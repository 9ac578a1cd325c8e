"""Reads the chart of deploy/chart: its values, templates and schema, and renders it with helm."""

import json
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.suite.programs import program
from tests.tidy.sources import ROOT

CHART = ROOT / "deploy" / "chart"
EXAMPLES = {path.stem: path for path in sorted((CHART / "examples").glob("*.yaml"))}
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
ROLES = ("gateway", "delivery", "retrier", "pipelines", "observe")
RELEASE, NAMESPACE = "hifi", "events"
# A blank line, or the end of the file, follows each named template.
_DEFINED = re.compile(r'\{\{- define "(\S+)" -\}\}\n(.*?)\{\{- end \}\}\n(?:\n|\Z)', re.DOTALL)


def templates() -> dict[str, str]:
    return {path.name: path.read_text() for path in (CHART / "templates").iterdir()}


def defined(name: str) -> str:
    """Return the text of a named template."""
    found: dict[str, str] = {
        key: text for file in templates().values() for key, text in _DEFINED.findall(file)
    }
    return found[name]


def values(example: str = "") -> dict[str, Any]:
    """Return the chart's values, with those of an example over them, as helm merges them."""
    merged: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return _over(merged, yaml.safe_load(EXAMPLES[example].read_text())) if example else merged


def _over(under: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in over.items():
        below = under.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            under[name] = _over(below, value)
        else:
            under[name] = value
    return under


def variables(role: str, example: str) -> dict[str, str]:
    """Return the variables that the chart gives to a role, without those of secrets and `env`."""
    read = values(example)

    def value(found: re.Match[str]) -> str:
        place = re.match(r"\.Values\.([\w.]+)", found[1])
        if place is None:
            return RELEASE
        inside: Any = read
        for name in place[1].split("."):
            inside = inside[name]
        return json.dumps(str(inside).lower() if isinstance(inside, bool) else str(inside))

    text = re.sub(r"\{\{ (.*?) \}\}", value, defined(f"hifi.variables.{role}"))
    named: dict[str, str] = yaml.safe_load(text)
    return named


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("helm"), *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )


@cache
def rendered(example: str, *options: str) -> tuple[dict[str, Any], ...]:
    """Return the objects that `helm template` makes of an example."""
    where = ("--namespace", NAMESPACE, "--values", EXAMPLES[example])
    made = helm("template", RELEASE, CHART, *where, *options)
    assert made.returncode == 0, made.stderr
    return tuple(each for each in yaml.safe_load_all(made.stdout) if each)
