"""Finds what tests start besides Python and Java; who needs what is not here is skipped by name."""

import shutil
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_LACKS = "this machine lacks "


def program(*names: str) -> str:
    """Where one of these programs is; without any the test that asks is skipped."""
    for path in filter(None, map(shutil.which, names)):
        return path
    pytest.skip(_LACKS + names[0])


def npm_package(folder: str, name: str) -> Path:
    """A package that `make test` has installed in a folder by npm."""
    program("node")
    package = _ROOT / folder / "node_modules" / name
    if not package.is_dir():
        pytest.skip(f"{_LACKS}{name} (npm ci in {folder})")
    return package


def need_express() -> None:
    """What the examples for JavaScript use."""
    npm_package("examples/javascript", "express")


def has_express() -> bool:
    """For who does without that part, and is skipped when the others are done."""
    try:
        need_express()
    except pytest.skip.Exception:
        return False
    return True
