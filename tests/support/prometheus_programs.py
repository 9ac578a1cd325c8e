"""Finds the programs of Prometheus, or fails with what to install."""

import shutil

import pytest

MISSING = "no {name}, which this test needs: apt install prometheus"


def program(name: str) -> str:
    """Where promtool or prometheus is."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(MISSING.format(name=name))
    return path
