"""The console in a real Chromium: pages, live updates, keyboard, redrive, hostile texts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from shared.config.outside.channel import Channel
from shared.event.envelope import MalformedRecord
from shared.event.record import Origin, RecordIn
from shared.event.topics import DEAD
from shared.proof.overview import Overview, StreamVerdict
from shared.retry.replay import Replay, ReplayProgress
from tests.component.console.access.test_console_access import make_key
from tests.component.console.pages.test_console_replays import ORDER
from tests.support.console.browser import Browser, Tab
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    every_verdict,
    found_event,
    letter,
    overview,
)
from tests.support.console.hostile_texts import HOSTILE_TEXTS
from tests.support.gateway.fake_replays import replays_of
from tests.support.suite.programs import npm_package

PAGES = [
    "/",
    "/streams",
    "/streams?only=unwanted&q=nothing",
    "/streams/orders",
    "/streams/orders/lake",
    "/destinations",
    "/dead",
    "/dead/letters",
    "/dead/redrive?stream=orders",
    "/events?stream=orders&id=e-1",
    "/events/newest",
    "/tenants",
    "/tenants/studio",
    "/keys",
    "/keys/new",
    "/channels",
    "/channels/new",
    "/changes",
    "/replays?stream=orders",
    "/words",
    "/alerts",
    "/runbooks",
    "/runbooks/HifiLoss",
]
# Also pages that are refused, and pages that ask for a key.
FURTHER_PAGES = [
    "/events",
    "/events?id=nowhere",
    "/events?key=user-7",
    "/pipelines",
    "/streams/orders/lake?range=6h&table=lag",
    "/destinations/new?stream=orders",
    "/destinations/settings?stream=orders&destination=lake",
    "/destinations/pause?stream=orders&destination=lake",
    "/keys/rotate?id=shop",
    "/channels/settings?channel=ops",
    "/channels/test?channel=ops",
    "/channels/remove?channel=ops",
    "/replays/new?stream=orders",
    "/replays/cancel?stream=orders&id=spring",
    "/streams:new",
    "/streams:settings?stream=orders",
    "/streams:remove?stream=orders",
    "/pipelines:new",
    "/sign-in",
    "/no",
]
_CUT_OFF = """[...document.querySelectorAll('nav[aria-label=Pages] a')].filter(link => {
    const [at, all] = [link, link.closest('nav')].map(it => it.getBoundingClientRect());
    return at.left < all.left - 10 || at.right > all.right + 10;
}).map(link => link.innerText)"""
AXE_FINDS = """axe.run(document).then(found => found.violations.flatMap(
    each => each.nodes.map(node => `${each.id}: ${node.html.slice(0, 200)}`)))"""


def axe() -> str:
    return (npm_package("tests/packages/axe", "axe-core") / "axe.min.js").read_text()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with browser.page() as tab:
        yield tab


def fill(console: RunningConsole) -> None:
    configure(console, make_key("shop", "write")[0])
    ops = Channel("ops", "mail", recipients=("ops@shop.example",))
    known = console.config.configuration
    console.config.configuration = known.apply(ops.config_key, ops.to_json())
    console.dead.letters = [letter("e-1"), letter("e-2")]
    console.events.found["orders", "e-1"] = found_event("e-1")
    waits = ReplayProgress(at={0: 400}, sent=400, why="the destination is paused")
    replays_of(console.gateway).known[ORDER.stream, ORDER.id] = Replay(ORDER, waits)


def test_every_page_loads_without_a_complaint(console: RunningConsole, tab: Tab) -> None:
    fill(console)
    for path in PAGES:
        tab.open(console.url + path)
        assert tab.run("document.querySelectorAll('h1').length") == 1, path
        assert tab.text("main"), path
    assert tab.complaints() == []


@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_is_wider_than_its_window(
    console: RunningConsole, browser: Browser, width: int
) -> None:
    fill(console)
    console.show(overview(unaccounted=3))
    with browser.page(width=width, height=800, is_phone=width < 500) as tab:
        for path in PAGES:
            tab.open(console.url + path)
            assert tab.run("document.documentElement.scrollWidth") <= width, path
            # No link to a page is cut off.
            assert tab.run(_CUT_OFF) == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_ground(
    console: RunningConsole, browser: Browser, scheme: str
) -> None:
    fill(console)
    console.show(overview(unaccounted=3))
    script = (Path(__file__).parents[3] / "support" / "console" / "contrast.js").read_text()
    with browser.page(scheme="dark" if scheme == "dark" else "light") as tab:
        for path in PAGES:
            tab.open(console.url + path)
            # WCAG 2.2 AA requires a contrast of 4.5 to 1.
            assert tab.run(script) == [], path
        console.show(every_verdict())
        for path in ("/", "/destinations"):
            tab.open(console.url + path)
            assert tab.run(script) == [], path


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_on_any_page(
    console: RunningConsole, browser: Browser, scheme: Literal["light", "dark"], width: int
) -> None:
    fill(console)
    console.show(overview(unaccounted=3))
    with browser.page(scheme=scheme, width=width, is_phone=width < 500) as tab:
        tab.open(f"{console.url}/words")
        tab.run(f"{axe()}; document.body.append(document.createElement('img'))")
        assert any(it.startswith("image-alt: <img>") for it in tab.run(AXE_FINDS))
        for path in (*PAGES, *FURTHER_PAGES):
            tab.open(console.url + path)
            tab.run(f"{axe()}; 0")
            assert tab.run(AXE_FINDS) == [], path
            assert (tab.text("h1") == "Not found") is (path == "/no"), path
        for name, heading in (("Not a name", "New key"), ("page", "page is created")):
            tab.open(f"{console.url}/keys/new")
            tab.run(f"document.querySelector('input[name=name]').value = {name!r}")
            tab.click_and_load("form[action='/keys/new'] button")
            assert tab.text("h1") == heading
            tab.run(f"{axe()}; 0")
            assert tab.run(AXE_FINDS) == [], heading
            assert tab.run("document.documentElement.scrollWidth") <= width, heading
        tab.open(f"{console.url}/replays/new?stream=orders")
        tab.run("document.querySelector('[name=event]').value = 'e-1'")
        tab.click_and_load("form[action='/replays/new'] button")
        assert tab.text("h1").startswith("Send 1,204 events to ")
        tab.run(f"{axe()}; 0")
        assert tab.run(AXE_FINDS) == []
        assert tab.run("document.documentElement.scrollWidth") <= width
        tab.open(f"{console.url}/pipelines:new")
        tab.click_and_load("form[action='/pipelines:new'] button")
        # The example in the form names a stream that does not exist.
        assert "line 6: to.0.stream" in tab.text("main")
        tab.run(f"{axe()}; 0")
        assert tab.run(AXE_FINDS) == []
        assert tab.run("document.documentElement.scrollWidth") <= width


def test_what_changes_is_seen_without_a_reload(console: RunningConsole, tab: Tab) -> None:
    tab.open(console.url)
    assert tab.text("h1").startswith("orders/lake is slow: p95 is 4.1 s")
    tab.run("document.querySelector('#streams a').focus()")
    tab.run("window.notReloaded = true")
    console.show(overview(unaccounted=3))
    tab.wait_for(
        "document.querySelector('h1').innerText.startsWith('3 events are unaccounted for')",
        what="the news is on the page",
    )
    assert tab.run("window.notReloaded") is True
    assert tab.run("document.activeElement.closest('#streams') !== null"), "the focus was lost"
    # Screen readers announce the sentence, not the tables.
    assert tab.text("#status").startswith("LOSING: 3 events")
    assert tab.run("document.querySelector('#status').getAttribute('role')") == "status"
    assert tab.complaints() == []


def test_live_updates_can_be_paused(console: RunningConsole, tab: Tab) -> None:
    tab.open(console.url)
    tab.wait_for("document.querySelector('#live').dataset.state === 'live'", what="it is live")
    tab.run("document.querySelector('#live').click()")
    assert tab.text("#live") == "Paused"
    console.show(overview(unaccounted=5))
    tab.run("document.querySelector('#live').click()")
    tab.wait_for("document.querySelector('h1').innerText.startsWith('5 events')", what="resumed")


def test_a_stream_that_is_gone_says_so(console: RunningConsole, tab: Tab) -> None:
    tab.open(f"{console.url}/streams/players")
    tab.wait_for("document.querySelector('#live').dataset.state === 'live'", what="it is live")
    known = console.config.configuration
    console.config.configuration = known.apply(known.streams["players"].config_key, None)
    shown = overview()
    console.show(Overview(shown.at_ms, shown.streams[:1], shown.audit))
    tab.wait_for("document.querySelector('h1').innerText === 'Not found'", what="the page is gone")


def test_a_keyboard_finds_everything(console: RunningConsole, tab: Tab) -> None:
    fill(console)
    tab.open(console.url)
    tab.key("Tab")
    assert tab.run("document.activeElement.innerText") == "Skip to content"
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    seen = []
    for _ in range(80):
        tab.key("Tab")
        said = tab.run("document.activeElement.innerText || document.activeElement.ariaLabel || ''")
        seen.append(said.strip().split("\n")[0])
    for wanted in ("Overview", "Dead letters", "Keys", "Live", "orders → lake", "orders/billing"):
        assert wanted in seen, seen


def test_a_redrive_by_keyboard_alone(console: RunningConsole, tab: Tab) -> None:
    fill(console)
    tab.open(f"{console.url}/dead/letters")
    assert "2 dead letters match." in tab.text("main")

    def press(label: str) -> None:
        tab.come_to(label)
        tab.leave(lambda: tab.key("Enter", text="\r"))

    press("Send 2 dead letters again …")
    assert tab.text("h1") == "Send 2 dead letters again?"
    assert console.dead.redrives == []
    press("Send 2 dead letters again")
    assert "2 sent again." in tab.text("main")
    assert len(console.dead.redrives) == 1
    assert tab.complaints() == []


def test_sign_in_and_out(locked_console: RunningConsole, tab: Tab) -> None:
    key, text = make_key("ops", "read")
    configure(locked_console, key)
    tab.open(f"{locked_console.url}/streams/orders")
    assert tab.text("h1") == "Sign in"
    assert tab.run("document.activeElement.id") == "key"
    tab.type("hifisk_wrong")
    tab.leave(lambda: tab.key("Enter", text="\r"))
    assert "not a complete key" in tab.text("[role=alert]")
    tab.type(text)
    tab.leave(lambda: tab.key("Enter", text="\r"))
    assert tab.text("h1").startswith("orders")
    assert tab.run("document.cookie") == "", "scripts can read the session"
    tab.wait_for("document.querySelector('#live').dataset.state === 'live'", what="it is live")
    tab.click_and_load(".account form button")
    assert tab.text("h1") == "Sign in"
    # The browser reports the 401 for the wrong key; there are no other complaints.
    assert [one for one in tab.complaints() if "401" not in one] == []


def test_hostile_texts_are_shown_as_texts(console: RunningConsole, tab: Tab) -> None:
    assert len(HOSTILE_TEXTS) >= 50
    # Kafka returns UTF-8, which cannot hold half of a surrogate pair.
    texts = [text.encode(errors="replace").decode() for text in HOSTILE_TEXTS]
    console.dead.letters = [
        replace(letter(text, reason=text), opened=_malformed(text)) for text in texts
    ]
    shown = overview()
    console.show(
        Overview(shown.at_ms, shown.streams, replace(shown.audit, problem=HOSTILE_TEXTS[0]))
    )
    tab.open(console.url)
    _assert_harmless(tab, "/")
    body = ""
    tab.open(f"{console.url}/dead/letters")
    while True:
        _assert_harmless(tab, "dead letters")
        body += _as_shown(tab.run("document.body.textContent"))
        if not tab.run("document.querySelector('.pager a[href*=before]') !== null"):
            break
        tab.click_and_load(".pager a[href*=before]")
    missing = [text for text in HOSTILE_TEXTS if _as_shown(text) not in body]
    assert missing == []


def test_hostile_texts_in_an_event_and_in_an_address(console: RunningConsole, tab: Tab) -> None:
    for text in filter(str.isprintable, HOSTILE_TEXTS[::4]):
        found = found_event(text, value=text.encode())
        console.events.found["orders", text] = replace(
            found, envelope=replace(found.envelope, key=text.encode(), traceparent=text)
        )
        tab.run(f"location.href = {console.url!r} + '/events?stream=orders&id='"
                f" + encodeURIComponent({text!r})")  # fmt: skip
        tab.wait_for(
            f"document.readyState === 'complete' && document.querySelector('h2 code')?.textContent"
            f" === {text!r}",
            what=f"the event {text!r} is shown",
        )
        _assert_harmless(tab, text)
        if "script" in text:
            tab.click_and_load("form[action='/events/payload'] button")
            assert tab.text("#payload code") == text
            _assert_harmless(tab, text)


def test_hostile_texts_in_live_news(console: RunningConsole, tab: Tab) -> None:
    tab.open(console.url)
    tab.wait_for("document.querySelector('#live').dataset.state === 'live'", what="it is live")
    for text in HOSTILE_TEXTS[::24]:
        shown = overview()
        orders, *others = shown.streams
        slow = replace(orders.destinations[1], verdict=StreamVerdict.STALLED, reason=text)
        changed = replace(orders, destinations=(orders.destinations[0], slow))
        console.show(replace(shown, streams=(changed, *others)))
        tab.wait_for(
            f"document.querySelector('.why').textContent === {text!r}", what=f"{text!r} is shown"
        )
        _assert_harmless(tab, text)


def _assert_harmless(tab: Tab, where: str) -> None:
    assert tab.run("typeof window.pwned") == "undefined", where
    foreign = tab.run("document.querySelectorAll('main img, main iframe, main base').length")
    assert foreign == 0, where
    assert tab.complaints() == [], where


def _malformed(problem: str) -> MalformedRecord:
    return MalformedRecord(RecordIn(Origin(DEAD, 0, 0), 0, None, b"", ()), problem)


def _as_shown(text: str) -> str:
    """Return a text as pages show it: NUL as a symbol, direction marks as codes, blanks folded."""
    visible = text.replace("\x00", "\u2400").replace("\u202e", "\\u202e")
    harmless = visible.encode(errors="replace").decode()
    return " ".join(harmless.split())
