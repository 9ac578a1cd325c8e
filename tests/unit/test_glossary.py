"""Words that people meet: each is explained once, with the names that programs use instead."""

from shared.glossary import (
    CAUSE_WORDS,
    COUNT_WORDS,
    MINUTE_WORDS,
    STAGE_WORDS,
    WORDS,
    hint_of,
    word_of,
)
from shared.proof.overview import MinuteState, Node


def test_each_word_has_one_meaning_and_one_place() -> None:
    names = [name for word in WORDS for name in (word.name, *word.also)]
    assert len(names) == len(set(names))
    assert [word.name for word in WORDS] == sorted(word.name for word in WORDS)
    anchors = [word.anchor for word in WORDS]
    assert len(anchors) == len(set(anchors))
    assert all(anchor.replace("-", "").isalnum() for anchor in anchors)


def test_what_is_shown_of_programs_names_is_explained() -> None:
    assert set(STAGE_WORDS) == {node.value for node in Node}
    assert set(MINUTE_WORDS) == {state.value for state in MinuteState}
    shown = [*COUNT_WORDS.values(), *CAUSE_WORDS.values()]
    assert [each for each in shown if word_of(each) is None] == []
    for told in (CAUSE_WORDS, {"pending": "queued"}):
        for programs, ours in told.items():
            word = word_of(ours)
            assert word is not None
            assert f"`{programs}`" in word.says


def test_a_hint_is_a_short_sentence_without_marks() -> None:
    for word in WORDS:
        hint = hint_of(word)
        assert len(hint) <= 202, hint
        assert hint.endswith(".")
        assert not set("`*[]") & set(hint), hint
    breaker = word_of("Breaker")
    assert breaker is not None
    assert hint_of(breaker).endswith("after a while (flow).")
    assert word_of("nothing of ours") is None
