"""Finds the version that each part of Hifi states; all must be the same."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.release.tools import ROOT

_COMPOSE = re.compile(r"\$\{HIFI_VERSION:-([^}]*)\}")
CHART = Path("deploy", "chart")


def version(root: Path = ROOT) -> str:
    """Return the version of Hifi itself."""
    return _of_project(root / "pyproject.toml")


def stated(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield the place of each version in the other files, and the version."""
    yield "clients/python/pyproject.toml", _of_project(root / "clients/python/pyproject.toml")
    package: dict[str, Any] = json.loads(_read(root / "clients/javascript/package.json"))
    yield "clients/javascript/package.json", package["version"]
    for found in _COMPOSE.findall(_read(root / "compose.yaml")):
        yield "compose.yaml (HIFI_VERSION)", found
    chart = root / CHART / "Chart.yaml"
    if chart.exists():
        fields = yaml.safe_load(_read(chart))
        for name in ("version", "appVersion"):
            yield f"{CHART}/Chart.yaml ({name})", str(fields.get(name))


def problems(root: Path = ROOT, *, tag: str | None = None) -> Iterator[str]:
    ours = version(root)
    for place, found in dict.fromkeys(stated(root)):
        if found != ours:
            yield f"{place} says {found}, but pyproject.toml {ours}: write {ours} there"
    if tag not in {None, f"v{ours}"}:
        yield f"the tag {tag} is not v{ours}, the version in pyproject.toml: change one of them"


def _of_project(path: Path) -> str:
    return str(tomllib.loads(_read(path))["project"]["version"])


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
