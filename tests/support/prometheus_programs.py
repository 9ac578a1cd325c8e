"""Finds the programs of Prometheus, or says what to install."""

import shutil

import pytest

MISSING = "no {name}: apt install prometheus, or the alert rules are only checked as text"


def program(name: str) -> str:
    """Where promtool or prometheus is; the test is skipped, and says why, where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(MISSING.format(name=name))
    return found
