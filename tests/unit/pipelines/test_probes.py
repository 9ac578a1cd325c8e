"""Events that documents are tried with: letters of their patterns, long numbers, long lists."""

import json
from typing import Any

import pytest

from pipelines.judging.odd_texts import DEEP_JSON, LONG_JSON, strings_in, texts_of
from pipelines.judging.patterns import TEXT_CHARS_MAX
from pipelines.judging.probes import odd_events
from shared.event.envelope import EVENT_BYTES_MAX


def member(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def struct(*members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(members)}


def listed(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


@pytest.mark.parametrize(
    ("expression", "repeated", "whole"),
    [
        ("left(a, 1024) RLIKE 'a*a*(aA|aB)'", "a", "aaaAaB"),
        ("left(a, 9) RLIKE 'x.*foo.*'", "a", "xafooa"),
        ('regexp_extract(left(a, 9), "^(?:ab|c)d{2,9}$", 1)', "d", "abcd"),
        (r"left(a, 9) RLIKE '^(\\S++) (?i)(?<n>\\d+)[^a0,]?'", "a", "a 0 "),
        (r"left(a, 9) RLIKE '[\\]\\d]+[]x]\\.?'", "]", "]]."),
        ("left(a, 9) RLIKE '[^a0 -]|b'", "~", "~b"),
    ],
)
def test_texts_have_the_letters_of_patterns_and_end_as_they_do_or_otherwise(
    expression: str, repeated: str, whole: str
) -> None:
    found = texts_of(["price > 10", expression])
    assert found[:2] == [repeated * (TEXT_CHARS_MAX - 1) + "\n", repeated * TEXT_CHARS_MAX]
    assert found[3] == whole * (TEXT_CHARS_MAX // len(whole))
    assert found[2][:-1] == found[3][:-1]
    assert found[2][-1] == "\n"


@pytest.mark.parametrize(
    "expression",
    ["a = 'plain'", "split(a, ',')", "a RLIKE '['", "a RLIKE '(a+)+'", "a = ''", "a > 1"],
)
def test_what_is_done_at_once_or_refused_needs_no_texts(expression: str) -> None:
    assert texts_of([expression]) == []


def test_of_many_patterns_the_dearest_are_tried_and_some_of_each() -> None:
    letters = "abcdefgh"
    found = texts_of([f"left(x, 9) RLIKE '{letter}+y'" for letter in letters])
    assert len({text[0] for text in found}) == 4
    cheap = [f"x RLIKE '{letter}?y'" for letter in letters]
    dear = texts_of([f"{' OR '.join(cheap)} AND x RLIKE '.*z.*'"])
    assert dear[0][:2] == "aa"
    assert texts_of(["x RLIKE '()*+'"])[1] == "a" * TEXT_CHARS_MAX


def test_numbers_are_long_where_decimals_and_texts_are_expected_as_they_are_and_as_texts() -> None:
    fields = [member("id", "string"), member("x", "decimal(38,0)"), member("n", "long")]
    for number in ("1e100000000", "1e-400000000"):
        events = [*odd_events(fields, [])]
        assert f'{{"id": {number}, "x": {number}, "n": 1}}' in events
        assert f'{{"id": "{number}", "x": "{number}", "n": 1}}' in events


def test_lists_are_long_and_texts_deep_within_what_an_event_may_be() -> None:
    items = listed(struct(member("a", "integer"), member("b", listed("string"))))
    fields = [member("items", items), member("m", {"type": "map", "valueType": "string"})]
    fields += [member("tags", listed("string")), member("lists", listed(listed("long")))]
    *_, deep, long = odd_events(fields, [])
    assert json.loads(deep)["items"] == [{"a": 1, "b": [json.loads("[" * 900 + "]" * 900)]}]
    read = json.loads(long)
    assert read.keys() == {"items", "tags", "lists"}
    assert {len(each) > 5_000 for each in read.values()} == {True}
    assert (read["items"][0], read["tags"][0], read["lists"][0]) == ({}, None, [])
    wide = [member("w", listed(struct(*(member(f"c{nth}", "integer") for nth in range(490)))))]
    *_, long = odd_events(wide, [])
    assert 100 < len(json.loads(long)["w"]) < 300


def test_texts_stand_in_the_members_that_are_named() -> None:
    fields = [member(f"m{nth}", "string") for nth in range(490)]
    said = ["m1 = 'a' OR left(m2, 1000) RLIKE 'a+b' OR size(from_json(m3, 'ARRAY<INT>')) > 0"]
    texts = [json.loads(event) for event in odd_events(fields, said)][5:]
    assert {tuple(text) for text in texts} == {("m1", "m2", "m3")}
    assert {text["m3"][0] for text in texts} == {"a", "["}
    assert [text["m2"] for text in texts[-2:]] == [LONG_JSON[:66_666], DEEP_JSON]
    everywhere = " ".join(field["name"] for field in fields)
    events = [*odd_events(fields, [*said, everywhere])]
    assert max(map(len, events)) < EVENT_BYTES_MAX


def test_all_texts_of_a_document_are_read() -> None:
    steps = ({"where": "a"}, {"select": {"x": "b", "y": ["c"]}}, {"n": 1, "no": None})
    assert [*strings_in(steps)] == ["a", "b", "c"]
