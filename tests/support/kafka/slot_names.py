"""Finds names whose slots belong to the process that a test needs."""

from itertools import count, islice

from shared.slots import SLOT_COUNT, slot_of


def names_in(part: int, parts: int, how_many: int = 1) -> list[str]:
    """Return names in one of `parts` equal parts of the slots, each held by one member."""
    found = (f"lane{number}" for number in count())
    fitting = (name for name in found if slot_of(name) * parts // SLOT_COUNT == part)
    return list(islice(fitting, how_many))
