"""Knows the habits that make our English read like a translation, and what to write instead."""

import re
from collections.abc import Iterator
from typing import NamedTuple


class Habit(NamedTuple):
    """A pattern, and the advice for whoever wrote it."""

    advice: str
    pattern: re.Pattern[str]


def _habit(advice: str, *patterns: str) -> Habit:
    return Habit(advice, re.compile("|".join(patterns)))


_VERB = (
    r"(?:is|are|was|were|has|have|had|may|can|cannot|must|do|does|did|goes|comes|wants|asks"
    r"|\w+s|\w+ed)\b"
)
_OBJECT_VERB = r"(?:is|are|was|were|has|have|had|may|can|cannot|must|wants|asks|followed)\b"
# A question may begin with any of these words.
_NO_QUESTION = r"(?![^?]*\?)"

HABITS = (
    _habit(
        "begin with the subject, not with 'Of' or 'None of'", r"^Of (?!course)", r"^None(?::| be)"
    ),
    _habit(
        "make a noun the subject, not a clause with 'what' or 'who'",
        rf"^{_NO_QUESTION}(?:What|Who|Whoever|Whom|Whatever|Which)(?: \w+)* {_VERB}",
    ),
    _habit(
        "name the people or the thing, not 'who has' or 'what is'",
        r"(?:[,:;] |\b(?:to|of|for|by|with) )(?:who|whom|what)(?:ever)? "
        rf"{_OBJECT_VERB}{_NO_QUESTION}",
    ),
    _habit(
        "give the number, or write 'this many' or 'this long'",
        r"\b[Ss]o (?:many|long|much|few)\b(?! (?:as|that|\w+ in a row)\b)(?!,)",
    ),
    _habit("write 'again', 'rebuilt' or 'from scratch'", r"\banew\b"),
    _habit("write 'already', 'now' or 'so far'", r"\bby now\b"),
    _habit("write 'earlier' or 'an earlier life'", r"\bof before\b"),
    _habit("write 'at its default' or 'unchanged'", r"\bas on the first day\b"),
    _habit(
        "say who tells whom, or use another verb",
        r"\b(?:is|are|was|were) (?:told|said)\b",
        r"\b(?:is|are) named to\b",
    ),
    _habit("write 'forever', or say when it ends", r"\bfor ever\b"),
    _habit(
        "write 'belongs to', or begin with the owner",
        r"\b(?:is|are) of (?:a|an|the|another|wild|one)\b",
    ),
    _habit(
        "write a whole sentence, not a note that begins with 'By' or 'For these alone'",
        r"^By (?:one|an?|the|this|those|comma|whom)\b",
        r"\bby comma\b",
        r"\b(?:these|names) alone\b",
    ),
    _habit(
        "begin with the verb that does it: 'Resumes', not 'Has them go on'",
        r"^Has (?!an?\b|the\b|no\b)\w+ (?:\w+ ){0,4}?(?:go|catch|be|come|do|run|take|wait|end)\b",
    ),
    _habit("say what is refused or said, not 'its no'", r"\b(?:its|a) no\b", r"\bno word about\b"),
    _habit("begin with a noun, not an infinitive", r"(?:^|, )[Tt]o (?:\w+ ){1,4}would\b"),
    _habit("write 'in order'", r"\bin its order\b", r"\bin their order\b"),
    _habit("write 'does well' or 'fails'", r"\bfares? (?:alike|well|ill|badly)\b"),
    _habit("name the thing, not 'such'", r"\bof such(?! an?\b)\b"),
    _habit("compare plainly: 'the limit is 30 s'", r", not sooner\b"),
    _habit("a column head is a noun: 'description', 'default'", r"^(?:what|else)$"),
    _habit("a label is a noun: 'Permissions'", r"^It may$", r"^It is told that$"),
    _habit("write 'without downtime', and 'secret'", r"\bwithout a gap\b", r"\bsecond text\b"),
    _habit("say what people cannot do", r"\bnor anything that\b"),
    _habit("write 'share', 'rate' or 'percentage'", r"\bthe part of (?:its|their)\b"),
)


def habits(sentence: str) -> Iterator[str]:
    """The advice for each habit that the sentence has."""
    return (habit.advice for habit in HABITS if habit.pattern.search(sentence))
