"""A page sends only its changes; a reader who applies them has the present page."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import live
from console.live import Live, changes
from console.parts.layout import Page, Region
from console.parts.markup import Safe, tag
from console.parts.pieces import table


def taken(before: Sequence[str], sent: Sequence[Any]) -> list[str]:
    """Apply the changes, as the script of a page does."""
    return [
        piece
        for each in sent
        for piece in ([each] if isinstance(each, str) else before[each[0] : each[0] + each[1]])
    ]


pieces = st.lists(st.sampled_from(["<tr>a", "<tr>b", "<td>c", "d"]), max_size=30)


@given(pieces, pieces)
def test_whoever_takes_the_changes_has_what_is_there_now(before: list[str], now: list[str]) -> None:
    sent = json.loads(json.dumps(changes(before, now)))
    assert taken(before, sent) == now
    assert not any(each in before for each in sent if isinstance(each, str))


def a_page(count: int) -> Page:
    rows = [[f"shop-{nth}", f"at the address {nth}", str(nth)] for nth in range(100)]
    rows[7][2] = str(count)
    shown = table(("Name", "Address", "Count"), rows, caption="All")
    still = Region("search", tag("p", "a form"), is_live=False)
    return Page("All", "/", (still, Region("list", Safe(shown))), status="well")


async def _news(pages: Iterator[Page]) -> list[dict[str, Any]]:
    texts = [event async for event in Live().follow(lambda: next(pages, None))]
    assert texts.pop() == "event: gone\ndata: {}\n\n"
    return [json.loads(text.split("data: ", 1)[1]) for text in texts]


def test_of_a_long_list_the_cell_that_has_changed_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "STEP_S", 0.001)
    first, second = asyncio.run(_news(iter([a_page(1), a_page(1), a_page(2_000)])))
    assert set(first["regions"]) == {"list"}
    shown = taken([], first["regions"]["list"])
    assert "".join(shown) == a_page(1).regions[1].content
    assert second["status"] == "well"
    assert "".join(taken(shown, second["regions"]["list"])) == a_page(2_000).regions[1].content
    (text,) = [each for each in second["regions"]["list"] if isinstance(each, str)]
    assert "2000" in text
    # The whole page is 10 kB.
    assert len(json.dumps(second)) < 200
