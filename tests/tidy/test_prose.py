"""Our English is plain: no sentence has one of the habits in `accent.py`."""

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from shared.glossary import RETIRED
from tests.tidy import sources
from tests.tidy.accent import HABITS, habits
from tests.tidy.prose import sentences, split

HERE = sources.ROOT / "tests" / "tidy"
EXAMPLES = tomllib.loads((HERE / "accent_examples.toml").read_text())["sentences"]
# These files quote sentences that nobody should write.
QUOTES = ("tests/tidy/accent", "CHANGELOG.md", "shared/glossary.py")
SHOWN_MAX = 30


class Finding(NamedTuple):
    """A sentence that should be rewritten, and why."""

    path: str
    line: int
    text: str
    advice: str


def advice_on(text: str) -> list[str]:
    """Return the habits in a sentence, and the words that the glossary has retired."""
    olds = (old for old in RETIRED if re.search(rf"\b{old}s?\b", text, re.IGNORECASE))
    return [*habits(text), *(f"say {RETIRED[old]!r} for {old!r}" for old in olds)]


def findings() -> Iterator[Finding]:
    """Yield the findings in the whole repository."""
    for path, text in sources.tracked():
        if not path.startswith(QUOTES):
            for sentence in sentences(path, text):
                if advice := "; ".join(advice_on(sentence.text)):
                    yield Finding(path, sentence.line, sentence.text, advice)


def test_no_sentence_has_a_habit_of_the_accent() -> None:
    shown = [f"{each.path}:{each.line}: {each.text!r}: {each.advice}" for each in findings()]
    assert shown[:SHOWN_MAX] == [], f"{len(shown)} sentences"


@pytest.mark.parametrize("old", RETIRED)
def test_a_retired_word_is_found(old: str) -> None:
    assert advice_on(f"Many a {old.capitalize()} is there.") != []


@pytest.mark.parametrize("example", EXAMPLES, ids=range(1, len(EXAMPLES) + 1))
def test_a_quoted_sentence_is_found_and_its_rewrite_passes(example: dict[str, str]) -> None:
    assert advice(example["before"]) != []
    assert advice(example["after"]) == []


def test_every_habit_is_shown_by_a_sentence_that_reviews_quoted() -> None:
    shown = {each for example in EXAMPLES for each in advice(example["before"])}
    assert [habit.advice for habit in HABITS if habit.advice not in shown] == []


def advice(text: str) -> list[str]:
    return [each for part in text.split("|") for words in split(part) for each in habits(words)]
