"""Regular expressions that could take forever are refused, with advice on an alternative."""

import pytest

from pipelines.judging.patterns import STEPS_MAX, PatternBudget, PatternError, judged

PLAIN = [
    "",
    "abc",
    ",",
    r"\.",
    "[,;|]",
    "[]a]b",
    "[^]a]",
    r"\p{L}x",
    r"[\d\]]x",
    "(?i)foo",
    "(?:ab)c",
]
TRYING = [
    "a*",
    "[ab]*c",
    "^/([^/]+)/",
    "a|b|c",
    "colou?r",
    r"^(\S++) (\S++) (\S++) (\S++)",
    "(?:,[0-9]++)*+",
    "(?>a+)b",
    "(?<word>a+)b",
    "(?:a|ab)*+",
    "a{2,5}",
    "a{3,}",
    "a{2}b",
    "(?:[a-z&&[^x]]+)",
    "(?i:ab+)",
]
REFUSED = {
    "(a+)+$": "repeats a part that can be matched in several ways",
    "(a|b)*": "repeats a part that can be matched in several ways",
    "(a?)*": "repeats a part that can be matched in several ways",
    "(.*a){12}": "repeats a part that can be matched in several ways",
    "((a{1,9}){1,9}){1,9}": "repeats a part that can be matched in several ways",
    "(?:(a*)*b)*+": "repeats a part that can be matched in several ways",
    "a*b*c*": "3 of its repeats may give back",
    "(a+){2,3}": "3 of its repeats may give back",
    "a?" * 10 + "b": "too many ways",
    "(a|b)" * 10: "too many ways",
    "(a{1,8}){1,8}": "too many ways",
    "x" * 513: "at most 512 characters",
    "(?=a)": "looks ahead or behind",
    "(?<!a)b": "looks ahead or behind",
    "(?x)a b": "flags other than",
    r"(a)\1": "refers back",
    r"(?<n>a)\k<n>": "refers back",
    r"\Qa\E": "quotes with",
    "(a": "bracket that is not closed",
    "[a": "bracket that is not closed",
    "a)": "closing bracket that was not opened",
    "a\\": "ends within an escape",
}


@pytest.mark.parametrize("pattern", PLAIN)
def test_what_tries_nothing_may_look_at_any_text(pattern: str) -> None:
    assert judged(pattern).is_plain


@pytest.mark.parametrize("pattern", TRYING)
def test_what_tries_a_little_may_look_at_a_short_one(pattern: str) -> None:
    assert not judged(pattern).is_plain


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_could_try_for_ever_is_refused_and_told_why(pattern: str) -> None:
    with pytest.raises(PatternError, match=REFUSED[pattern]):
        judged(pattern)


@pytest.mark.parametrize(
    ("pattern", "chars", "steps"),
    [
        ("abc", 10, 10),
        ("a|b|c", 10, 30),
        ("a*b", 10, 55),
        # Measured: 0.5 to 0.9 s.
        ("a*a*b", 1_024, 179_481_600),
        ("a*(?:aA|aB|aC)", 1_024, 3 * 524_800),
    ],
)
def test_steps_are_the_ways_from_each_place_of_a_text(pattern: str, chars: int, steps: int) -> None:
    assert judged(pattern).steps(chars) == steps


def test_the_patterns_of_a_document_share_their_steps() -> None:
    budget = PatternBudget()
    # This pattern used to be accepted, though a text of 1,024 characters took minutes.
    ways = "|".join(f"a{chr(65 + nth)}" for nth in range(26))
    with pytest.raises(PatternError, match="look at fewer characters"):
        budget.take(judged(f"a*a*(?:{ways})").steps(1_024))
    budget, one = PatternBudget(), judged(".*foo.*").steps(1_000)
    for _ in range(STEPS_MAX // one):
        budget.take(one)
    with pytest.raises(PatternError, match="together with earlier patterns"):
        budget.take(one)
