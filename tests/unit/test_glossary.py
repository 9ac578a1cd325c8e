"""Each term is explained once, and programs use the same terms."""

from observe.metrics import CAUSES
from shared.glossary import COUNTS, WORDS, hint_of, word_of
from shared.proof.overview import MinuteState, Stage


def test_each_word_has_one_meaning_and_one_place() -> None:
    names = [name for word in WORDS for name in (word.name, *word.also)]
    assert len(names) == len(set(names))
    assert [word.name for word in WORDS] == sorted(word.name for word in WORDS)
    anchors = [word.anchor for word in WORDS]
    assert len(anchors) == len(set(anchors))
    assert all(anchor.replace("-", "").isalnum() for anchor in anchors)


def test_every_count_stage_cause_and_state_is_explained() -> None:
    stages = [stage.value for stage in Stage]
    states = [state.value for state in MinuteState]
    shown = [*COUNTS, *CAUSES, *stages, *states]
    assert [each for each in shown if word_of(each) is None] == []


def test_a_hint_is_a_short_sentence_without_markdown() -> None:
    for word in WORDS:
        hint = hint_of(word)
        assert len(hint) <= 202, hint
        assert hint.endswith(".")
        assert not set("`*[]") & set(hint), hint
    breaker = word_of("Breaker")
    assert breaker is not None
    assert hint_of(breaker).endswith("after a while (flow).")
    assert word_of("nothing of ours") is None
