"""The page of replays: its texts, and who may count, start and cancel a replay."""

import re
from typing import Any

import httpx
import pytest
from msgspec import structs

from shared.retry.replay import Replay, ReplayOrder, ReplayProgress
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import RunningConsole, configure, csrf_of
from tests.support.console.hostile_texts import HOSTILE_TEXTS
from tests.support.gateway.fake_replays import FakeReplays, replays_of

PAGE, NEW = "/replays?stream=orders", "/replays/new"
ORDER = ReplayOrder(
    id="spring",
    stream="orders",
    destination="lake",
    tenant="default",
    spans={0: (0, 1_000)},
    created_at_ms=1_790_000_000_000,
    from_ms=1_789_000_000_000,
    rate_per_s=50.0,
)


@pytest.fixture
def replays(console: RunningConsole) -> FakeReplays:
    return replays_of(console.gateway)


def show(replays: FakeReplays, progress: ReplayProgress, **otherwise: Any) -> None:
    order = structs.replace(ORDER, **otherwise)
    replays.known[order.stream, order.id] = Replay(order, progress)


def cells(page: str) -> list[str]:
    """Return the texts of the first row."""
    row = re.search(r"<tbody><tr>(.*?)</tr>", page, re.DOTALL)
    assert row, page
    texts = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row[1], re.DOTALL)
    return [re.sub(r"<[^>]+>", "", each) for each in texts]


def test_a_page_says_how_far_each_is_and_why_it_waits(
    replays: FakeReplays, client: httpx.Client
) -> None:
    assert "No replay in the last 30 days." in client.get(PAGE).text
    progress = ReplayProgress(at={0: 400}, sent=390, gone=10, why="the destination is paused")
    show(replays, progress)
    page = client.get(PAGE).text
    asked_for = "stored since 2026-09-10T00:26:40.000Z, before 2026-09-21T14:13:20.000Z"
    assert cells(page) == [
        f"spring{asked_for}, at most 50/s", "lake", "waits: the destination is paused",
        "600", "390", "10", "show", "Cancel …",
    ]  # fmt: skip
    assert "/dead/letters?stream=orders&amp;destination=lake&amp;from=2026-09-21T14:13:20" in page
    show(replays, ReplayProgress(at={0: 9}, state="failed", why="the destination was removed"))
    page = client.get(PAGE).text
    assert cells(page)[2:4] == ["failed the destination was removed", "0"]
    assert "/replays/cancel" not in page
    show(replays, ReplayProgress(at={0: 1_000}, sent=1_000, state="done"), key="user-7", event="e")
    first = cells(client.get(f"{PAGE}&destination=lake").text)
    assert first[2:5] == ["done", "0", "1,000"]
    assert ", key user-7, event e, " in first[0]
    assert "<tbody>" not in client.get(f"{PAGE}&destination=billing").text


def test_one_is_counted_begun_once_and_cancelled_without_any_script(
    console: RunningConsole, browser: Browser, replays: FakeReplays
) -> None:
    with browser.page() as tab:
        tab.open(f"{console.url}/streams/orders/lake")
        tab.send("Emulation.setScriptExecutionDisabled", value=True)
        tab.click_and_load(f"a[href='{PAGE}']")
        tab.click_and_load(f"a[href^='{NEW}']")
        tab.run("document.querySelector('[name=destination]').value = 'lake'")
        tab.run("document.querySelector('[name=from]').value = '2026-11-21T10:00'")
        tab.run("document.querySelector('[name=rate_per_s]').value = '25'")
        tab.click_and_load(f"form[action='{NEW}'] button")
        assert tab.text("h1") == "Send 1,204 events to lake again?"
        command = "--destination lake --from 2026-11-21T10:00Z --rate 25.0"
        assert f"hifi replays create orders {command}" in tab.text("main")
        assert replays.known == {}
        tab.click_and_load(f"form[action='{NEW}'] button")
        assert "The replay has started;" in tab.text("p.done")
        assert tab.text("tbody td[data-head='To go']") == "1,204"
        tab.click_and_load("a[href^='/replays/cancel']")
        assert "1,204 events of it are not read yet" in tab.text("main")
        assert "hifi replays cancel orders " in tab.text("main")
        tab.click_and_load("form[action='/replays/cancel'] button")
        assert tab.text("tbody td[data-head=State]") == "cancelled"
        assert tab.complaints() == []
    (replay,) = replays.known.values()
    assert replay.order is not None
    assert (replay.order.destination, replay.order.rate_per_s) == ("lake", 25.0)


def test_who_sends_the_same_yes_twice_has_begun_one(
    client: httpx.Client, replays: FakeReplays
) -> None:
    form = {"csrf": csrf_of(client.get(f"{NEW}?stream=orders").text), "stream": "orders"}
    form |= {"destination": "lake", "event": "e-7"}
    asked = client.post(NEW, data=form).text
    assert "Hifi sends only those of the 1,204 events with the given key or id." in asked
    hidden = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', asked))
    for _ in range(2):
        done = client.post(NEW, data=hidden)
        assert (done.status_code, done.headers["location"]) == (303, f"{PAGE}&begun=yes")
    (replay,) = replays.known.values()
    assert replay.order is not None
    assert (replay.order.event, replay.order.from_ms) == ("e-7", None)


@pytest.mark.parametrize(
    ("typed", "status", "says"),
    [
        ({"from": "2026-11-21T10:00", "rate_per_s": "many"}, 422, "is not a number of events"),
        ({"from": "2026-11-21T10:00", "destination": "x"}, 404, "orders has no destination"),
        ({"from": "2026-11-21T10:00", "to": "2026-11-20T10:00"}, 400, "it must be after from"),
        ({"from": "yesterday"}, 400, "from"),
        ({"from": ""}, 422, "Enter a start time or an event id."),
    ],
)
def test_what_is_wrong_is_said_beside_what_was_typed(
    client: httpx.Client, replays: FakeReplays, typed: dict[str, str], status: int, says: str
) -> None:
    form = {"csrf": csrf_of(client.get(f"{NEW}?stream=orders").text), "stream": "orders"}
    answer = client.post(NEW, data={**form, "destination": "lake", **typed})
    assert answer.status_code == status
    (alert,) = re.findall(r'role="alert">(.*?)</p>', answer.text)
    assert says in alert
    assert f'value="{typed["from"]}"' in answer.text
    assert replays.known == {}


def test_there_are_pages_of_them(client: httpx.Client, replays: FakeReplays) -> None:
    for number in range(45):
        show(replays, ReplayProgress(), id=f"r-{number:02}", created_at_ms=number)
    first = client.get(PAGE).text
    seen = []
    while True:
        seen += re.findall(r'<th scope="row"><code>(r-\d+)</code>', first)
        older = re.search(r'<a href="([^"]+)">Older</a>', first)
        if older is None:
            break
        first = client.get(older[1].replace("&amp;", "&")).text
    assert seen == [f"r-{number:02}" for number in reversed(range(45))]


def test_readers_see_and_may_not_and_others_tenants_are_not_there(
    locked_console: RunningConsole,
) -> None:
    replays = replays_of(locked_console.gateway)
    reader, reads = make_key("reader", "read")
    other, elsewhere = make_key("other", "admin", tenant="studio")
    configure(locked_console, reader, other)
    show(replays, ReplayProgress(at={0: 1}))
    cancel = "/replays/cancel?stream=orders&id=spring"
    with httpx.Client(base_url=locked_console.url) as visitor:
        sign_in(visitor, reads)
        page = visitor.get(PAGE).text
        assert "spring" in page
        assert "with a key of the scope admin" in page
        assert NEW not in page
        assert "/replays/cancel" not in page
        form = {"csrf": csrf_of(page), "stream": "orders", "id": "spring", "destination": "lake"}
        for path in (f"{NEW}?stream=orders", cancel):
            assert visitor.get(path).status_code == 403
            assert visitor.post(path.partition("?")[0], data=form).status_code == 403
    with httpx.Client(base_url=locked_console.url) as visitor:
        sign_in(visitor, elsewhere)
        form["csrf"] = csrf_of(visitor.get("/replays?stream=players").text)
        for path in (PAGE, f"{NEW}?stream=orders", cancel):
            answer = visitor.get(path)
            assert answer.status_code == 404
            assert "spring" not in answer.text
        for path in (NEW, "/replays/cancel"):
            assert visitor.post(path, data=form).status_code == 404
    (replay,) = replays.known.values()
    assert replay.state == "running"


def test_no_text_of_anybodys_is_a_part_of_the_page(
    client: httpx.Client, replays: FakeReplays
) -> None:
    for text in HOSTILE_TEXTS:
        said = text.encode(errors="replace").decode()
        show(replays, ReplayProgress(why=said), key=said, event=said)
        page = client.get(PAGE)
        assert page.status_code == 200
        assert "<script>pwned" not in page.text
        asked = {"stream": "orders", "id": said, "destination": said, "before": said}
        assert client.get("/replays/cancel", params=asked).status_code == 404, said
