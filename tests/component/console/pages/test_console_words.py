"""Each word of the console is explained on hover, on keyboard focus, and on the glossary page."""

import re
from html import unescape

import httpx
import pytest

from shared.glossary import RETIRED, WORDS, hint_of, word_of
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import RunningConsole, found_event, letter

PAGES = ("/", "/streams", "/streams/orders", "/streams/orders/lake", "/destinations", "/pipelines")
_TERM = re.compile(r'<a href="/words#([a-z-]+)" title="([^"]+)" class="term">([^<]+)</a>')


def test_the_words_lead_to_their_page_where_each_is_explained(client: httpx.Client) -> None:
    words = client.get("/words").text
    seen = set()
    for path in PAGES:
        page = client.get(path).text
        assert 'href="/words"' in page, path
        for anchor, title, name in _TERM.findall(page):
            word = word_of(name)
            assert word is not None, name
            assert (anchor, unescape(title)) == (word.anchor, hint_of(word))
            assert f'id="{anchor}"' in words
            seen.add(word.name)
    assert seen >= {"acknowledged", "queued", "waiting", "dead letter", "unaccounted", "verdict",
                    "p95", "oldest", "backlog"}  # fmt: skip
    assert words.count("<dt>") == len(WORDS)


def test_no_page_says_what_the_words_have_replaced(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.dead.letters = [letter("e-1")]
    console.events.found["orders", "e-1"] = found_event("e-1")
    olds = re.compile(
        rf"\b(on the(ir)? way|node|settled|live texts|{'|'.join(RETIRED)})\b", re.IGNORECASE
    )
    more = ("/dead/letters", "/events?stream=orders&id=e-1", "/keys", "/changes", "/words")
    for path in (*PAGES, *more):
        said = re.sub(r"<script.*?</script>|<[^>]+>", " ", client.get(path).text)
        assert olds.findall(said) == [], path


@pytest.mark.parametrize("width", [390, 1280])
def test_a_keyboard_reads_what_a_word_means_and_puts_it_away(
    console: RunningConsole, browser: Browser, width: int
) -> None:
    with browser.page(width=width, height=800, is_phone=width < 500) as tab:
        tab.open(f"{console.url}/streams/orders/lake")
        shown = "getComputedStyle(document.activeElement, '::after').content"
        for _ in range(60):
            tab.key("Tab")
            if tab.run("document.activeElement.innerText") == "Backlog":
                break
        word = word_of("Backlog")
        assert word is not None
        assert hint_of(word) in tab.run(shown)
        # Screen readers and pointers get the same text.
        assert tab.run("document.activeElement.title") == hint_of(word)
        tab.key("Escape")
        assert tab.run(shown) == "none"
        tab.key("Tab")
        tab.run("document.querySelector('thead .term').focus()")
        box = "document.activeElement.getBoundingClientRect()"
        assert tab.run("getComputedStyle(document.activeElement.closest('thead')).clipPath") == (
            "none"
        )
        assert tab.run(f"{box}.width") > 10, "the focus is on an invisible element"
        assert hint_of(word_of(tab.run("document.activeElement.innerText")) or word) in tab.run(
            shown
        )
        tab.leave(lambda: tab.key("Enter", text="\r"))
        assert tab.text("h1") == "Words"
        assert tab.run("document.querySelector(':target dt').innerText")
        assert tab.complaints() == []
