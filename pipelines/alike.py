"""Compares results with expectations, as JSON. Pure."""

import math
from typing import Any

# The relative error of numbers after a few sums and products.
_PART_OF_A_NUMBER = 1e-9


def is_alike(one: Any, other: Any) -> bool:
    """Compare as JSON; a null member equals a missing one."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = {name for each in (one, other) for name, value in each.items() if value is not None}
        return all(is_alike(one.get(name), other.get(name)) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_alike, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_PART_OF_A_NUMBER)
    return bool(one == other)
