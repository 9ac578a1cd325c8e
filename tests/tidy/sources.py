"""Finds the files of the repository, as git sees them: ignored files are not ours."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.suite.programs import program

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("shared", "gateway", "delivery", "retrier", "pipelines", "observe", "console", "deploy")

# Every rule reads the trees of all files: to parse them takes seconds, to keep them 350 MB.
parsed = cache(ast.parse)


def tracked() -> Iterator[tuple[str, str]]:
    """Yield path and text of each text file, including new ones."""
    listed = subprocess.run(
        [program("git"), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    for path in sorted(set(listed.stdout.decode().split("\0"))):
        # A file may be listed and already deleted; a picture is not text.
        if path and (ROOT / path).is_file():
            try:
                yield path, (ROOT / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def python_files() -> dict[str, str]:
    return {path: text for path, text in tracked() if path.endswith(".py")}


def product_files() -> dict[str, str]:
    return {path: text for path, text in python_files().items() if path.startswith(PRODUCT_PATHS)}


def core_files() -> dict[str, str]:
    """Return the files that the contract `pure-core` lists, with all files of listed folders."""
    listed = tuple(module.replace(".", "/") for module in pure_modules())
    within = tuple(f"{room}/" for room in listed)
    return {
        path: text
        for path, text in python_files().items()
        if path.removesuffix(".py") in listed or path.startswith(within)
    }


def pure_modules() -> list[str]:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    modules = next(row["source_modules"] for row in contracts if row["id"] == "pure-core")
    assert isinstance(modules, list)
    return modules


PRODUCT_PATHS = tuple(f"{package}/" for package in PRODUCT)
