"""Our English is plain: no sentence gets the habits that `accent.py` knows, and old ones go."""

import re
import subprocess
import tomllib
from collections import Counter, defaultdict
from functools import cache
from typing import NamedTuple

import pytest

from shared.glossary import RETIRED
from tests.support.suite.programs import program
from tests.tidy import sources
from tests.tidy.accent import HABITS, habits
from tests.tidy.prose import sentences, split

HERE = sources.ROOT / "tests" / "tidy"
EXAMPLES = tomllib.loads((HERE / "accent_examples.toml").read_text())["sentences"]
# The number of sentences with a habit that each room still has, by kind. It may only fall.
ALLOWED = tomllib.loads((HERE / "prose_counts.toml").read_text())
# These quote sentences that nobody should write.
QUOTES = ("tests/tidy/accent", "CHANGELOG.md", "shared/glossary.py")
SHOWN_MAX = 30


class Finding(NamedTuple):
    """A sentence that should be rewritten, and why."""

    path: str
    line: int
    text: str
    advice: str


def advice_on(text: str) -> list[str]:
    """The habits in a sentence, and the words that the glossary has retired."""
    olds = (old for old in RETIRED if re.search(rf"\b{old}s?\b", text, re.IGNORECASE))
    return [*habits(text), *(f"say {RETIRED[old]!r} for {old!r}" for old in olds)]


@cache
def findings() -> dict[tuple[str, str], list[Finding]]:
    """All of the repository, by room and kind."""
    found = defaultdict[tuple[str, str], list[Finding]](list)
    for path, text in sources.tracked():
        if path.startswith(QUOTES):
            continue
        room = path.split("/")[0] if "/" in path else "top"
        for sentence in sentences(path, text):
            if advice := "; ".join(advice_on(sentence.text)):
                found[room, sentence.kind].append(
                    Finding(path, sentence.line, sentence.text, advice)
                )
    return found


def changed() -> set[str]:
    """The files that differ from the last commit."""
    listed = subprocess.run(
        [program("git"), "status", "--porcelain", "-z"],
        cwd=sources.ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return {entry[3:] for entry in listed.stdout.decode().split("\0")}


def test_no_room_has_more_sentences_to_mend_than_it_had() -> None:
    more = {
        where: found
        for where, found in findings().items()
        if len(found) > ALLOWED.get(where[0], {}).get(where[1], 0)
    }
    touched = changed()
    shown = [
        f"{each.path}:{each.line}: {each.text!r}: {each.advice}"
        for found in more.values()
        for each in sorted(found, key=lambda it: it.path not in touched)
    ]
    counts = {f"{room} ({kind})": len(found) for (room, kind), found in more.items()}
    assert shown[:SHOWN_MAX] == [], f"more than prose_counts.toml allows: {counts}"


@pytest.mark.parametrize("old", RETIRED)
def test_a_retired_word_is_found(old: str) -> None:
    assert advice_on(f"Many a {old.capitalize()} is there.") != []


def test_the_counts_are_those_of_now() -> None:
    """A count that is higher than what is there would let a habit come back."""
    now = Counter({where: len(found) for where, found in findings().items()})
    high = {
        f"{room}.{kind}": (count, now[room, kind])
        for room, kinds in ALLOWED.items()
        for kind, count in kinds.items()
        if count > now[room, kind]
    }
    assert high == {}, "lower these in prose_counts.toml: (allowed, there are)"


@pytest.mark.parametrize("example", EXAMPLES, ids=range(1, len(EXAMPLES) + 1))
def test_a_quoted_sentence_is_found_and_its_rewrite_passes(example: dict[str, str]) -> None:
    assert advice(example["before"]) != []
    assert advice(example["after"]) == []


def test_every_habit_is_shown_by_a_sentence_that_reviews_quoted() -> None:
    shown = {each for example in EXAMPLES for each in advice(example["before"])}
    assert [habit.advice for habit in HABITS if habit.advice not in shown] == []


def advice(text: str) -> list[str]:
    return [each for part in text.split("|") for words in split(part) for each in habits(words)]
