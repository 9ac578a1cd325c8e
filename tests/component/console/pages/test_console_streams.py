"""All streams in the console: listed, found, in bounded pages, each with a link to it."""

import html
import re
from dataclasses import replace

import httpx
import pytest

from shared.config.configuration import Stream
from shared.proof.balance import Balance
from shared.proof.last_answer import LastAnswer
from shared.proof.overview import RecentOutcomes, StreamVerdict, StreamView
from shared.proof.restored import RestoredView
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    overview,
    running_console,
)


def unwanted(*names: str) -> tuple[StreamView, ...]:
    """Return streams without destinations."""
    return tuple(
        StreamView(name, StreamVerdict.OK, "", 2.5, None, (), acked=7, last_accepted_at_ms=1)
        for name in names
    )


def show(console: RunningConsole, *names: str) -> None:
    shown = overview()
    console.show(replace(shown, streams=(*shown.streams, *unwanted(*names))))


def links_of(page: str) -> set[str]:
    return set(map(html.unescape, re.findall(r'href="([^"]+)"', page)))


def test_a_stream_that_nobody_takes_has_a_way_to_it(
    console: RunningConsole, client: httpx.Client
) -> None:
    names = ["ho-ingest", "ho-ingest-four", "ho-ingest-key", "ho-last"]
    show(console, *names)
    first = client.get("/").text
    assert {f"/streams/{name}" for name in names[:3]} <= links_of(first)
    assert "/streams?only=unwanted" in links_of(first)
    assert "/streams" in links_of(first)
    listed = client.get("/streams?only=unwanted").text
    assert {f"/streams/{name}" for name in names} <= links_of(listed)
    assert "/streams/orders" not in links_of(listed)
    assert "nothing reads its events" in listed
    page = client.get("/streams/ho-last")
    assert page.status_code == 200
    assert "hifi destinations put ho-last NAME URL" in page.text


def test_the_list_has_the_worst_first_and_each_figure_leads_to_what_it_counts(
    console: RunningConsole, client: httpx.Client
) -> None:
    show(console, "alone")
    shown = console.overview
    orders, *others = shown.streams
    lossy = replace(orders.destinations[0], balance=Balance(10, 6, dead=3, unaccounted=1))
    orders = replace(
        orders,
        destinations=(lossy,),
        verdict=StreamVerdict.LOSING,
        last_accepted_at_ms=shown.at_ms - 90_000,
    )
    console.show(replace(shown, streams=(*others, orders)))
    listed = client.get("/streams").text
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", listed)
    assert [re.findall(r'href="/streams/([a-z]+)"', row)[0] for row in rows] == [
        "orders", "alone", "players",
    ]  # fmt: skip
    first = links_of(rows[0])
    for path in (
        "/events/newest?stream=orders", "/streams/orders#destinations", "/dead?stream=orders",
        "/streams/orders#loss",
    ):  # fmt: skip
        assert path in first, path
    assert "1 min 30 s ago" in rows[0]
    # The page of a stream shows how many events were restored.
    restored = RestoredView(4_321, "spring", shown.at_ms - 90_000)
    page = "Restored events"
    assert page not in client.get("/streams/orders").text
    console.show(replace(shown, streams=(*others, replace(orders, restored=restored))))
    told = client.get("/streams/orders").text
    assert (page in told, "4,321 events of these; last by spring, 1 min 30 s ago" in told) == (
        True, True,
    )  # fmt: skip
    # There are no dead letters to link to.
    assert "/dead?stream=alone" not in rows[1]
    in_trouble = client.get("/streams?only=trouble").text
    assert "/streams/orders" in links_of(in_trouble)
    assert "/streams/players" not in links_of(in_trouble)


def test_ten_thousand_streams_are_pages_and_each_is_found(
    console: RunningConsole, client: httpx.Client
) -> None:
    show(console, *(f"stream-{number:05}" for number in range(10_000)))
    page = client.get("/streams")
    assert len(page.content) < 300_000
    assert "10,002 streams; 1 to 100 are shown" in page.text
    seen: set[str] = set()
    path, pages = "/streams?q=stream-", 0
    while path:
        text = client.get(path).text
        seen |= set(re.findall(r'href="/streams/(stream-\d+)"', text))
        older = re.search(r'href="(/streams\?[^"]*)">Next page', text)
        path, pages = html.unescape(older[1]) if older else "", pages + 1
    assert (len(seen), pages) == (10_000, 100)
    found = client.get("/streams?q=09999").text
    assert "1 stream matches." in found
    assert "/streams/stream-09999" in links_of(found)
    for wrong in ("page=0", "page=99999999999", "page=x", "page=-1", "only=x", "q=%00%E2%80%AE<b>"):
        answer = client.get(f"/streams?{wrong}")
        assert answer.status_code == 200, wrong
        assert "<b>" not in answer.text


def test_ten_thousand_destinations_are_pages_and_each_is_found(
    console: RunningConsole, client: httpx.Client
) -> None:
    shown = overview()
    orders, *others = shown.streams
    one = orders.destinations[0]
    names = [f"shop-{number:05}" for number in range(10_000)]
    views = [replace(one, name=name, destination_id=f"orders/{name}") for name in names]
    views[7:14] = [replace(view, verdict=StreamVerdict.SLOW) for view in views[7:14]]
    console.show(replace(shown, streams=(replace(orders, destinations=tuple(views)), *others)))
    seen: list[str] = []
    path, pages = "/destinations?q=orders/shop-", 0
    while path:
        text = client.get(path).text
        seen += re.findall(r'href="/streams/orders/(shop-\d+)"', text)
        further = re.search(r'href="(/destinations\?[^"]*)">Next page', text)
        path, pages = html.unescape(further[1]) if further else "", pages + 1
    assert (sorted(seen), pages) == (names, 100)
    troubled = client.get("/destinations?only=trouble").text
    assert "7 destinations match." in troubled
    assert "orders/shop-00011 and 2 others." in troubled
    assert "1 destination matches." in client.get("/destinations?q=shop-09999").text
    stream = client.get("/streams/orders")
    assert len(stream.content) < 300_000
    assert '9,900 more: <a href="/destinations?q=orders%2F">' in stream.text


def test_each_row_of_a_destination_says_how_it_goes_and_what_it_said_last(
    console: RunningConsole, client: httpx.Client
) -> None:
    shown = overview()
    orders, *others = shown.streams
    billing, lake = orders.destinations
    at_ms = 1_790_000_000_000
    refusal = LastAnswer(at_ms, "status_503", "no healthy <upstream>")
    views = (
        # One failure of 3,000 rules out 100 %.
        replace(billing, lately=RecentOutcomes(2_999, failed=1), last_ok_at_ms=at_ms + 1,
                last_refusal=refusal),
        replace(lake, lately=RecentOutcomes(0, failed=7), last_ok_at_ms=at_ms - 1,
                last_refusal=refusal),
    )  # fmt: skip
    console.show(replace(shown, streams=(replace(orders, destinations=views), *others)))
    rows = client.get("/destinations").text.split("<tr>")[2:]
    of = {each.split("</a>", 1)[0].rpartition(">")[2]: each for each in rows}
    assert '<span class="good">14:13 taken</span>' in of["orders/billing"]
    way = '<a href="/streams/orders/billing#past-success" class="figure warn">99.9 %</a>'
    assert way in of["orders/billing"]
    said = '<span class="warn">14:13 503 no healthy &lt;upstream&gt;</span>'
    assert said in of["orders/lake"]
    assert ">0 %</a>" in of["orders/lake"]
    # Nothing was sent to it yet.
    assert "past-success" not in of["players/stats"]


def test_nobody_sees_the_streams_of_others() -> None:
    with running_console("keys") as running:
        theirs, text = make_key("studio", "read", tenant="studio")
        configure(running, theirs)
        running.show(overview())
        with httpx.Client(base_url=running.url) as visitor:
            sign_in(visitor, text)
            listed = visitor.get("/streams").text
            assert "/streams/players" in links_of(listed)
            assert "orders" not in listed
            assert visitor.get("/streams/orders").status_code == 404
            assert visitor.get("/events/newest?stream=orders").status_code == 404
            # Only admins may see the contents of events, and search them.
            asked = visitor.get("/events/newest?stream=players&contains=x")
            assert asked.status_code == 403


def test_a_streams_page_has_its_settings(console: RunningConsole, client: httpx.Client) -> None:
    made = Stream("orders", partition_count=12, key_pointer="/user/id", json_schema='{"x": 1}')
    configuration = console.config.configuration
    console.config.configuration = configuration.apply(made.config_key, made.to_json())
    page = client.get("/streams/orders").text
    for part in (
        "<dd>12</dd>",
        "<code>/user/id</code>",
        "8 characters",
        "hifi streams get orders",
    ):
        assert part in page, part


@pytest.mark.parametrize("path", ["/streams?q=ord", "/streams/orders"])
def test_the_list_works_by_keyboard_and_goes_on_living(
    console: RunningConsole, browser: Browser, path: str
) -> None:
    with browser.page() as tab:
        tab.open(f"{console.url}/streams")
        for _ in range(40):
            tab.key("Tab")
            if tab.run("document.activeElement.name") == "q":
                break
        tab.type("ord")
        tab.leave(lambda: tab.key("Enter", text="\r"))
        assert "1 stream matches." in tab.text("main")
        tab.open(console.url + path)
        tab.wait_for("document.querySelector('#live').dataset.state === 'live'", what="it is live")
        shown = overview()
        orders = replace(shown.streams[0], acked=77_777)
        console.show(replace(shown, streams=(orders, *shown.streams[1:])))
        tab.wait_for("document.body.innerText.includes('77,777')", what="the news is on the page")
        assert "players" not in tab.text("main")
        assert tab.complaints() == []


def test_an_empty_console_leads_to_the_first_event(
    console: RunningConsole, client: httpx.Client, browser: Browser
) -> None:
    shown = overview()
    console.show(replace(shown, streams=()))
    page = client.get("/").text
    for command in (
        "hifi keys create root --scope admin",
        "hifi streams put orders",
        "hifi destinations put orders shop http://127.0.0.1:8090/",
        "hifi send orders &#x27;{&quot;id&quot;:&quot;order-1&quot;,&quot;total&quot;:25}&#x27;",
        "hifi status",
    ):
        assert command in page, command
    assert "done</span>" not in page
    # Each form is linked, filled in with the result of the step before.
    for name in ("/keys/new", "/streams:new", "/destinations/new?stream=orders&destination=shop"):
        assert name in links_of(page)
        assert client.get(name).status_code == 200
    console.show(replace(shown, streams=unwanted("clicks")))
    page = client.get("/").text
    # The steps for the stream and for its first event are done.
    assert page.count("done</span>") == 2
    assert "hifi destinations put clicks shop" in page
    assert "/destinations/new?stream=clicks&destination=shop" in links_of(page)
    with browser.page() as tab:
        tab.open(console.url)
        assert tab.run("document.querySelectorAll('.first li').length") == 5
        console.show(shown)
        tab.wait_for("!document.querySelector('.first')", what="something has arrived")
        assert tab.complaints() == []
    console.show(replace(shown, streams=(), problem="nothing has been read yet"))
    assert "hifi streams put" not in client.get("/").text


def test_who_may_not_make_anything_is_led_to_no_form() -> None:
    with running_console("keys") as running:
        reader, text = make_key("reader", "read")
        configure(running, reader)
        running.show(replace(overview(), streams=()))
        with httpx.Client(base_url=running.url) as visitor:
            sign_in(visitor, text)
            page = visitor.get("/").text
    assert "hifi streams put orders" in page
    assert not {each for each in links_of(page) if "new" in each}
