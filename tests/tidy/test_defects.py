"""Each patch that restores a fixed defect still applies, and names the test that finds it."""

from pathlib import Path

import pytest

from tests.defects.defect import Defect, UselessDefectError, all_defects
from tests.tidy.sources import ROOT


def test_there_are_defects_to_put_back() -> None:
    assert all_defects()


@pytest.mark.parametrize("patch", all_defects(), ids=lambda patch: patch.stem)
def test_a_defect_can_be_put_back_and_names_its_finder(patch: Path) -> None:
    defect = Defect.read(patch)
    assert defect.what.endswith(".")
    defect.require_finder()
    defect.apply(ROOT, only_checks=True)


@pytest.mark.parametrize(
    "text",
    [
        "found by: tests/x.py::test_x\nwhat: it is the wrong way round.\n",
        "what: no test is named.\nfound by: tests/tidy/test_defects.py\n",
        "what: that one is not there.\nfound by: tests/tidy/test_defects.py::test_nothing\n",
        "what: there is no diff.\nfound by: tests/tidy/test_docs.py::test_there_is\n",
    ],
)
def test_a_patch_that_is_no_use_is_found(text: str, tmp_path: Path) -> None:
    patch = tmp_path / "x.patch"
    patch.write_text(text)
    with pytest.raises(UselessDefectError):
        Defect.read(patch).require_finder()


def test_a_patch_that_does_not_apply_is_found(tmp_path: Path) -> None:
    patch = tmp_path / "x.patch"
    diff = next(iter(all_defects())).read_text().replace("\n-", "\n-never there ")
    patch.write_text(diff)
    with pytest.raises(UselessDefectError):
        Defect.read(patch).apply(ROOT, only_checks=True)
