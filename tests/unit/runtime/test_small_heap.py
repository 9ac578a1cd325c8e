"""A heap starts with room for kept data, and never exceeds its limit."""

from itertools import product

import pytest

from shared.runtime.java.small_heap import small_heap


def test_it_begins_with_the_young_part_and_what_is_kept() -> None:
    options = small_heap(1_024, kept_mb=80)
    assert options == ("-XX:NewSize=96m", "-Xms176m", "-XX:+AlwaysPreTouch")


@pytest.mark.parametrize(("heap_mb", "kept_mb"), list(product((128, 320, 512), (80, 96))))
def test_it_begins_with_no_more_than_it_may_have(heap_mb: int, kept_mb: int) -> None:
    young, first, _ = small_heap(heap_mb, kept_mb=kept_mb)
    young_mb = int(young.removeprefix("-XX:NewSize=").removesuffix("m"))
    first_mb = int(first.removeprefix("-Xms").removesuffix("m"))
    assert young_mb < first_mb <= heap_mb
