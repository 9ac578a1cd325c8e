"""JSON on a page: highlighted, one member to a line, otherwise unchanged."""

import json
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.parts.json_text import json_lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def shown(text: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", str(json_lines(text))))


def test_a_member_stands_on_its_line_as_it_was_written() -> None:
    text = '{"total": 1.50, "of":[1e400,{}],"says" : "a, b: {c}\\n"}'
    assert shown(text).split("\n") == [
        "{",
        '  "total": 1.50,',
        '  "of": [',
        "    1e400,",
        "    {}",
        "  ],",
        '  "says": "a, b: {c}\\n"',
        "}",
    ]
    marked = str(json_lines(text))
    assert '<span class="j-name">&quot;total&quot;</span>: <span class="j-other">1.50' in marked
    assert '<span class="j-text">&quot;a, b' in marked


@pytest.mark.parametrize("text", ["", "no {json", '{"a":', "{]", "[" * 100_000])
def test_what_is_no_json_stays_as_it_is(text: str) -> None:
    assert shown(text) == text


@given(VALUES)
def test_it_is_the_same_json(value: object) -> None:
    # A character that a browser cannot show is written as its number, in any text of a page.
    text = json.dumps(value)
    assert json.loads(shown(text)) == value
