"""Builds the images once, with buildah, on a Debian that mmdebstrap makes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deploy.built_images import BuiltImages

NEEDS = ("buildah", "mmdebstrap")


def pytest_collect_file(file_path: Path) -> None:
    """Skip the tests visibly where their programs are not installed: they must not just pass."""
    if file_path.suffix == ".py" and not all(map(shutil.which, NEEDS)):
        pytest.skip(f"this machine lacks {' or '.join(NEEDS)}: run make test-images as root")


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImages]:
    """Build both images; delete their containers at the end."""
    built = BuiltImages(tmp_path_factory.mktemp("images"))
    built.build()
    try:
        yield built
    finally:
        built.delete_containers()
