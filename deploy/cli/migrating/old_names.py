"""Finds old names in a text, and replaces those that the new name can take over."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from deploy.cli.migrating.names import ALL, SETTINGS

_NAME = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, ALL))})(?!\w)")


class OldName(NamedTuple):
    """An old name in a line of a text."""

    line: int
    name: str
    # Whether the text also sets the new name, so that only a person knows which value counts.
    is_set_twice: bool

    @property
    def new_name(self) -> str:
        return ALL[self.name]


def old_names(text: str) -> Iterator[OldName]:
    """Yield the old names in a text, line by line."""
    twice = _set_twice(text)
    for number, line in enumerate(text.splitlines(), start=1):
        for found in _NAME.findall(line):
            yield OldName(number, found, found in twice)


def rewritten(text: str) -> str:
    """Return the text with new names, except where both names are set."""
    twice = _set_twice(text)
    return _NAME.sub(lambda old: old[0] if old[0] in twice else ALL[old[0]], text)


def _set_twice(text: str) -> set[str]:
    return {old for old, new in SETTINGS.items() if re.search(rf"(?<!\w){new}(?!\w)", text)}
