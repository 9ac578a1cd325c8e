"""Finds programs that tests start besides Python and Java; tests that lack one are skipped."""

import shutil
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_LACKS = "this machine lacks "


def program(*names: str) -> str:
    """Return the path of one of these programs; without any, skip the calling test."""
    for path in filter(None, map(shutil.which, names)):
        return path
    pytest.skip(_LACKS + names[0])


def npm_package(folder: str, name: str) -> Path:
    """Return a package that `make test` has installed in a folder by npm."""
    program("node")
    package = _ROOT / folder / "node_modules" / name
    if not package.is_dir():
        pytest.skip(f"{_LACKS}{name} (npm ci in {folder})")
    return package


def need_express() -> None:
    """Need a package that the examples for JavaScript use."""
    npm_package("examples/javascript", "express")


def has_express() -> bool:
    """Return whether Express is there, for a test that is skipped only after its other parts."""
    try:
        need_express()
    except pytest.skip.Exception:
        return False
    return True
