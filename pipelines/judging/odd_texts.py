"""Makes texts that a document's own expressions could take long over. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.judging.patterns import TEXT_CHARS_MAX, PatternError, judged

# Numbers that would take hours to be written out.
EXPONENTS = ("1e100000000", "1e-400000000")
# A list, and lists within each other: the reader's own limit are a thousand.
LONG_JSON, DEEP_JSON = "[" + "{}," * 30_000 + "{}]", '[{"a":' * 5_000
# The most costly patterns of a document are tried, with this many texts.
_PATTERNS_MAX, _TEXTS_MAX = 4, 6
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
# Matches one character of a pattern, and how often it may come.
_ATOM = re.compile(
    r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\]()|^$*+?{}])([*+?]|\{[^}]*\})?", re.DOTALL
)
_OPENING = re.compile(r"\(\?(?:[:>]|<\w+>|[a-z]+:|[a-z]+\))")
_STANDS_FOR = {"d": "0", "s": " ", "w": "a", "D": "a", "S": "a", "W": " ", "t": "\t", "n": "\n"}
# Hardly a pattern ends with it.
_NO_MATCH = "\n"


def strings_in(document: Any) -> Iterator[str]:
    """All texts of a part of a document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for each in document.values():
            yield from strings_in(each)
    elif isinstance(document, list | tuple):
        for each in document:
            yield from strings_in(each)


def texts_of(expressions: Iterable[str]) -> list[str]:
    """Texts of the letters of what may be patterns in these: each as long as is looked at."""
    costs = {}
    for expression in expressions:
        for found in _QUOTED.finditer(expression):
            # SQL has a backslash written twice.
            pattern = (found[1] or found[2] or "").replace(r"\\", "\\")
            if cost := _cost(pattern):
                costs[pattern] = cost
    dearest = sorted(costs, key=lambda pattern: costs[pattern], reverse=True)[:_PATTERNS_MAX]
    each = [_texts(pattern) for pattern in dearest]
    # Some of each, before there are all of one.
    texts = [of[nth] for nth in range(max(map(len, each), default=0)) for of in each if of[nth:]]
    return list(dict.fromkeys(texts))[:_TEXTS_MAX]


def _cost(pattern: str) -> int:
    """The steps that it may take; 0 for what is no pattern, or looks at each place once."""
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
    """One that it matches, as a rule."""
    if atom.startswith("[^"):
        return next((char for char in "a0 -" if char not in atom), "~")
    if atom.startswith("["):
        return _char(atom[1:3] if atom[1] == "\\" else atom[1])
    if atom.startswith("\\"):
        return _STANDS_FOR.get(atom[1], atom[1])
    return "a" if atom == "." else atom
