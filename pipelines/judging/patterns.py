"""Judges regular expressions: refuses those that Java's matcher may never finish.

The matcher tries every way to divide a text among the repeats of a pattern. With two repeats the
work is quadratic, and with a repeat inside another it may never end. Possessive repeats (`*+`,
`++`), which never give back, are tried in only one way, so any number of them is allowed.
"""

import re
from dataclasses import dataclass
from math import comb, prod

PATTERN_CHARS_MAX = 512
# The maximum number of repeats among which the matcher may divide a text.
REPEATS_MAX = 2
# The maximum number of ways that `?` and `|` may make: each may be tried at each place.
WAYS_MAX = 1_000
# The longest text to match against a pattern that repeats anything.
TEXT_CHARS_MAX = 1_024
# The maximum number of steps that all patterns of a document may take on one event: 2 to 6 s of a
# core at worst, which nobody can interrupt. Patterns that people write take a thousandth of that.
STEPS_MAX = 500_000_000
# Up to this bound, {2,8} counts as question marks; with a higher bound it counts as a repeat.
_FEW = 8

_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d{1,6})(,(\d{1,6})?)?\})([?+]?)")
# After an opening bracket: a plain group, a name, or flags that change no structure.
_PLAIN_GROUP = re.compile(r"\?(?::|>|<[A-Za-z][A-Za-z0-9]*>|[imsu]+:)")
_FLAGS = re.compile(r"\(\?[imsu]+\)")


class PatternError(ValueError):
    """The pattern is refused; the text says why, and what is allowed instead."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The number of ways there are through a part of a pattern."""

    # Repeats that give back some of their match.
    repeats: int = 0
    # The number of ways that alternatives and optional parts make.
    ways: int = 1
    # Whether anything repeats, possessively or not.
    has_repeats: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it looks at each place of a text only once: then a text may have any length."""
        return self.ways == 1 and not self.has_repeats

    def steps(self, chars: int) -> int:
        """The maximum steps on a text of this many characters, tried from each of its places."""
        return comb(chars + self.repeats, self.repeats + 1) * self.ways


@dataclass(slots=True)
class PatternBudget:
    """The steps that the patterns of one document may take together."""

    steps: int = 0

    def take(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise PatternError(
                f"together with earlier patterns it may take {self.steps:,} steps on one event; at"
                f" most {STEPS_MAX:,} are allowed: let it look at fewer characters, or write"
                " repeats as *+ or ++"
            )


def judged(pattern: str) -> Ways:
    """Return the ways through a pattern that may be used; raise PatternError for any other."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternError(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    reader = _Reader(pattern)
    whole = reader.alternatives()
    if reader.at < len(pattern):
        raise PatternError("it has a closing bracket that was not opened")
    if whole.repeats > REPEATS_MAX:
        raise PatternError(
            f"{whole.repeats} of its repeats may give back; at most {REPEATS_MAX} are allowed:"
            " write the others as *+ or ++"
        )
    if whole.ways > WAYS_MAX:
        raise PatternError("there are too many ways to match it: it has too many ? and |")
    return whole


class _Reader:
    """Reads a pattern once, from its beginning."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    def alternatives(self) -> Ways:
        branches = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._sequence())
        return Ways(
            max(each.repeats for each in branches),
            sum(each.ways for each in branches),
            any(each.has_repeats for each in branches),
        )

    def _sequence(self) -> Ways:
        parts = []
        while self._peek() not in {"", "|", ")"}:
            parts.append(self._quantified(self._atom()))
        return Ways(
            sum(each.repeats for each in parts),
            prod(each.ways for each in parts),
            any(each.has_repeats for each in parts),
        )

    def _quantified(self, atom: Ways) -> Ways:
        match = _QUANTIFIER.match(self._pattern, self.at)
        if match is None:
            return atom
        self.at = match.end()
        least, most = _bounds(match)
        is_possessive = match[5] == "+"
        gives_back = not is_possessive and least != most
        if most is not None and most <= _FEW:
            more = most - least + 1 if gives_back else 1
            return Ways(
                atom.repeats * max(most, 1), more * atom.ways**most, atom.has_repeats or most > 1
            )
        if not is_possessive and (atom.repeats > 0 or atom.ways > 1):
            raise PatternError(
                "it repeats a part that can be matched in several ways:"
                " write [ab]* for (a|b)*, and the outer repeat as *+ or ++"
            )
        return Ways(atom.repeats + gives_back, atom.ways, has_repeats=True)

    def _atom(self) -> Ways:
        char = self._peek()
        if flags := _FLAGS.match(self._pattern, self.at):
            self.at = flags.end()
        elif char == "(":
            return self._group()
        elif char == "[":
            self._class()
        elif char == "\\":
            self._escape()
        else:
            self.at += 1
        return Ways()

    def _group(self) -> Ways:
        self.at += 1
        if self._peek() == "?":
            plain = _PLAIN_GROUP.match(self._pattern, self.at)
            if plain is None:
                raise PatternError("it looks ahead or behind, or sets flags other than i, m, s, u")
            self.at = plain.end()
        inner = self.alternatives()
        if self._peek() != ")":
            raise PatternError("it has a bracket that is not closed")
        self.at += 1
        return inner

    def _class(self) -> None:
        self.at += 1
        if self._peek() == "^":
            self.at += 1
        # A closing bracket that comes first is one of the characters.
        if self._peek() == "]":
            self.at += 1
        while (char := self._peek()) != "]":
            if not char:
                raise PatternError("it has a bracket that is not closed")
            if char == "[":
                self._class()
            elif char == "\\":
                self._escape()
            else:
                self.at += 1
        self.at += 1

    def _escape(self) -> None:
        escaped = self._pattern[self.at + 1 : self.at + 2]
        if not escaped:
            raise PatternError("it ends within an escape")
        if escaped in "123456789k":
            raise PatternError("it refers back to the match of a group")
        if escaped == "Q":
            raise PatternError(r"it quotes with \Q: escape each character instead")
        self.at += 2
        if escaped in "pPxuN" and self._peek() == "{":
            self.at = self._pattern.find("}", self.at) + 1 or len(self._pattern)

    def _peek(self) -> str:
        return self._pattern[self.at : self.at + 1]


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    """The minimum and the maximum count; the maximum is None if there is no limit."""
    if found[1]:
        return (1, None) if found[1] == "+" else (0, 1 if found[1] == "?" else None)
    least = int(found[2])
    if not found[3]:
        return least, least
    return least, int(found[4]) if found[4] else None
