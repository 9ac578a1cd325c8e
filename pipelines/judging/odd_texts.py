"""Makes texts on which a document's own expressions may be slow. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.judging.patterns import TEXT_CHARS_MAX, PatternError, judged

# Numbers that would take hours to write out.
EXPONENTS = ("1e100000000", "1e-400000000")
# A long list, and deeply nested lists: the reader's own limit is a thousand.
LONG_JSON, DEEP_JSON = "[" + "{}," * 30_000 + "{}]", '[{"a":' * 5_000
# The maximum numbers of patterns of a document, the costliest first, and of texts that are tried.
_PATTERNS_MAX, _TEXTS_MAX = 4, 6
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
# Matches one character of a pattern, and its quantifier.
_ATOM = re.compile(
    r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\]()|^$*+?{}])([*+?]|\{[^}]*\})?", re.DOTALL
)
_OPENING = re.compile(r"\(\?(?:[:>]|<\w+>|[a-z]+:|[a-z]+\))")
_STANDS_FOR = {"d": "0", "s": " ", "w": "a", "D": "a", "S": "a", "W": " ", "t": "\t", "n": "\n"}
# Hardly any pattern ends with this character.
_NO_MATCH = "\n"


def strings_in(document: Any) -> Iterator[str]:
    """Yield all texts of a part of a document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for each in document.values():
            yield from strings_in(each)
    elif isinstance(document, list | tuple):
        for each in document:
            yield from strings_in(each)


def texts_of(expressions: Iterable[str]) -> list[str]:
    """Texts of characters from these expressions' patterns, of the maximum length for a match."""
    costs = {}
    for expression in expressions:
        for match in _QUOTED.finditer(expression):
            # SQL writes a backslash twice.
            pattern = (match[1] or match[2] or "").replace(r"\\", "\\")
            if cost := _cost(pattern):
                costs[pattern] = cost
    dearest = sorted(costs, key=lambda pattern: costs[pattern], reverse=True)[:_PATTERNS_MAX]
    each = [_texts(pattern) for pattern in dearest]
    # Take one text from each pattern, then a second one from each, and so on.
    texts = [
        of[index] for index in range(max(map(len, each), default=0)) for of in each if of[index:]
    ]
    return list(dict.fromkeys(texts))[:_TEXTS_MAX]


def _cost(pattern: str) -> int:
    """The steps that a pattern may take; 0 if it is invalid, or looks at each place only once."""
    try:
        ways = judged(pattern)
    except PatternError:
        return 0
    return 0 if ways.is_plain else ways.steps(TEXT_CHARS_MAX)


def _texts(pattern: str) -> list[str]:
    atoms = [(_char(atom), often) for atom, often in _ATOM.findall(_OPENING.sub("", pattern))]
    repeated = next((char for char, often in atoms if often), atoms[0][0] if atoms else "a")
    whole = "".join(char for char, _ in atoms) or "a"
    long = [each * (TEXT_CHARS_MAX // len(each)) for each in (repeated, whole)]
    return [text for each in long for text in (each[:-1] + _NO_MATCH, each)]


def _char(atom: str) -> str:
    """A character that the atom usually matches."""
    if atom.startswith("[^"):
        return next((char for char in "a0 -" if char not in atom), "~")
    if atom.startswith("["):
        return _char(atom[1:3] if atom[1] == "\\" else atom[1])
    if atom.startswith("\\"):
        return _STANDS_FOR.get(atom[1], atom[1])
    return "a" if atom == "." else atom
