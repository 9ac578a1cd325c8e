"""Each fixed defect is found when it is put back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.defects.defect import Defect, UselessDefectError, all_defects, copy_tree

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("patch", all_defects(), ids=lambda patch: patch.stem)
def test_a_defect_that_is_put_back_is_found(
    patch: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    defect = Defect.read(patch)
    copy_tree(tmp_path)
    defect.apply(tmp_path)
    record_property("said", defect.find_in(tmp_path))


def test_what_finds_nothing_and_what_breaks_otherwise_is_no_finder(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    test = tmp_path / "tests" / "unit" / "test_not_a_finder.py"
    test.write_text("def test_passes(): pass\n\n\ndef test_breaks(): import nothing_like_it\n")
    for name in ("test_passes", "test_breaks", "test_is_not_there"):
        finder = f"tests/unit/test_not_a_finder.py::{name}"
        with pytest.raises(UselessDefectError, match=r"asserts nothing|no test ran"):
            Defect(test, "nothing is wrong", finder).find_in(tmp_path)
