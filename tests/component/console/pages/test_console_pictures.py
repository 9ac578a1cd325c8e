"""Charts of past values in a real Chromium: ranges, axes, read-out, tables, sparklines, size."""

import html
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import httpx
import pytest

from shared.proof.last_answer import LastAnswer
from shared.proof.overview import Overview, RecentOutcomes
from shared.runtime.clock import now_ms
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.browser import Browser, Tab
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    destination_view,
    overview,
)
from tests.support.console.past_series import fill, fill_many

PICTURES = ("throughput", "success", "status", "lag", "backlog")


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with browser.page() as tab:
        yield tab


def of(page: str, name: str) -> str:
    """Return one chart of a page."""
    found = re.search(f'<figure id="past-{name}">.*?</figure>', page, re.DOTALL)
    assert found, name
    return found[0]


def test_a_destination_that_is_down_is_in_its_pictures(
    console: RunningConsole, client: httpx.Client
) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    page = client.get("/streams/orders/lake").text
    # 100 events a second were accepted, none was delivered; the oldest is nearly 15 min old.
    assert "accepted 100/s, delivered 0/s" in of(page, "throughput")
    assert "delivered 0 %" in of(page, "success")
    assert "5xx 3/s" in of(page, "status")
    assert "oldest event 14 min 50 s" in of(page, "lag")
    assert "p95 of delivered events" not in of(page, "lag").split('class="reading"')[1]
    assert "events that wait 8,900" in of(page, "backlog")
    well = client.get("/streams/orders/billing").text
    assert "delivered 100 %" in of(well, "success")
    assert "p95 of delivered events 200 ms" in of(well, "lag")
    # The stream shows the sums of both destinations, and the higher lag.
    both = client.get("/streams/orders").text
    assert "accepted 100/s, delivered 100/s" in of(both, "throughput")
    assert "delivered 76.9 %" in of(both, "success")
    assert "oldest event 14 min 50 s" in of(both, "lag")
    assert "events that wait 8,912" in of(both, "backlog")


def test_axes_are_round_and_say_their_units(console: RunningConsole, client: httpx.Client) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    page = client.get("/streams/orders/lake").text

    def upwards(name: str) -> list[str]:
        scale = re.search(r'class="scale"[^>]*>(.*?)</div>', of(page, name), re.DOTALL)
        assert scale
        return re.findall(r"<span>(.*?)</span>", scale[1])

    assert upwards("throughput") == ["100/s", "75/s", "50/s", "25/s", "0/s"]
    assert upwards("success") == ["100 %", "75 %", "50 %", "25 %", "0 %"]
    assert upwards("lag") == ["20 min", "15 min", "10 min", "5 min", "0"]
    assert upwards("backlog") == ["10,000", "7,500", "5,000", "2,500", "0"]
    along = re.findall(r"<text [^>]*>(\d\d:\d\d)</text>", of(page, "lag"))
    assert len(along) in {4, 5}
    assert all(int(minute[3:]) % 3 == 0 for minute in along)


@pytest.mark.parametrize(
    ("name", "says", "first"),
    [("1h", "1 h", r"\d\d:\d\d:[03]0: "), ("6h", "6 h", r"\d\d:\d\d:00: "),
     ("24h", "24 h", r"[A-Z][a-z]+ \d\d \d\d:\d0: "), ("7d", "7 d", r"[A-Z][a-z]+ \d\d \d\d:00: ")],
)  # fmt: skip
def test_each_range_has_its_link_and_its_steps(
    console: RunningConsole, client: httpx.Client, name: str, says: str, first: str
) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    page = client.get("/streams/orders/billing").text
    assert f'href="/streams/orders/billing?range={name}#pictures">{says}</a>' in page
    page = client.get(f"/streams/orders/billing?range={name}").text
    assert f'aria-current="true">{says}</a>' in page
    lag = of(page, "lag")
    assert f"Lag, last {says}" in lag
    assert re.search(f'data-newest="{first}p95 of delivered events \\d+ ms', lag)
    # A range is one of five words; any other means 15 min.
    assert "Lag, last 15 min" in client.get("/streams/orders/billing?range=1y").text


def test_every_picture_has_a_table_that_needs_no_script(
    console: RunningConsole, client: httpx.Client
) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    page = client.get("/streams/orders/lake").text
    for name in PICTURES:
        link = f'href="/streams/orders/lake?range=15m&amp;table={name}#past-{name}"'
        assert link in of(page, name)
        opened = client.get(f"/streams/orders/lake?range=15m&table={name}").text
        assert of(opened, name).count("<tr>") == 91
        assert sum("<table" in of(opened, each) for each in PICTURES) == 1
    table = client.get("/streams/orders/lake?table=lag").text
    assert '<td data-head="oldest event" class="number">14 min 50 s</td>' in of(table, "lag")


def test_what_nobody_saw_is_a_gap_and_said_to_be_one(
    console: RunningConsole, client: httpx.Client
) -> None:
    at_ms = console.overview.at_ms
    fill(console.series, now_ms=at_ms - 300_000, steps=30)
    fill(console.series, now_ms=at_ms, steps=5)
    throughput = of(client.get("/streams/orders/billing").text, "throughput")
    assert throughput.count("not observed") == 55
    (line,) = re.findall(r'<path d="([^"]*)" class="line l0">', throughput)
    assert line.count("M") == 2
    assert "Charts appear after the first 20 seconds." in client.get("/streams/players/x").text or (
        client.get("/streams/players/x").status_code == 404
    )


def test_before_there_is_a_past_a_page_says_when_it_begins(client: httpx.Client) -> None:
    for path in ("/", "/streams/orders", "/streams/orders/lake"):
        assert "Charts appear after the first 20 seconds." in client.get(path).text


def test_waiting_for_a_turn_is_not_kafkas_doing(client: httpx.Client) -> None:
    page = client.get("/streams/orders/lake").text
    where = page[page.index("Where time goes") :]
    assert ">queue</a>" in where.split("</section>")[0]
    assert "until the lane's next turn" in html.unescape(where)
    assert ">kafka" not in where.split("</section>")[0]


def test_a_picture_is_read_out_by_keyboard_and_by_pointer(
    console: RunningConsole, tab: Tab
) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    tab.open(f"{console.url}/streams/orders")
    tab.wait_for(
        "document.querySelector('#past-backlog [role=slider]') !== null", what="the page is ready"
    )
    reader = "document.querySelector('#past-backlog [role=slider]')"
    assert tab.text("#past-backlog .reading").endswith("events that wait 8,912")
    tab.run(f"{reader}.focus()")
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    tab.key("ArrowLeft")
    assert tab.text("#past-backlog .reading").endswith("events that wait 8,812")
    assert tab.run(f"{reader}.getAttribute('aria-valuetext')").endswith("wait 8,812")
    tab.key("Home")
    assert tab.text("#past-backlog .reading").endswith("events that wait 12")
    # A live update keeps the chosen step and its read-out, wherever that step is now.
    tab.key("ArrowRight")
    chosen = tab.text("#past-backlog .reading")
    assert chosen.endswith("wait 112")
    later_ms = console.overview.at_ms + 10_000
    fill(console.series, now_ms=later_ms)
    console.show(overview(unaccounted=3, at_ms=later_ms))
    tab.wait_for("document.querySelector('h1').innerText.includes('LOSING')", what="news came")
    assert tab.run(f"document.activeElement === {reader}")
    begin = chosen.split(": ")[0]
    tab.wait_for(f"{reader}.getAttribute('aria-valuenow') === '1'", what="its place has moved")
    assert tab.text("#past-backlog .reading").startswith(begin)
    tab.run("document.activeElement.blur()")
    assert tab.text("#past-backlog .reading").endswith("events that wait 8,912")
    tab.run(f"""(() => {{
      const box = {reader}.getBoundingClientRect();
      const at = {{ bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + 9 }};
      {reader}.dispatchEvent(new PointerEvent("pointermove", at));
    }})()""")
    assert tab.text("#past-backlog .reading").endswith("events that wait 4,512")
    assert tab.complaints() == []


def test_lists_have_sparklines(console: RunningConsole, client: httpx.Client) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    page = client.get("/destinations").text
    assert "Delivered, last 15 min. Highest 0/s, not delivered 30/s" in page
    assert "Delivered, last 15 min. Highest 100/s" in page
    assert "Accepted, last 15 min. Highest 100/s" in client.get("/streams").text


def test_pages_stay_small(console: RunningConsole, client: httpx.Client) -> None:
    """200 destinations have different histories, with 180 steps each."""
    at_ms = now_ms()
    names = [f"shop-{number}" for number in range(199)]
    fill_many(console.series, [f"orders/{name}" for name in (*names, "lake")], now_ms=at_ms)
    console.show(_with_answers(_many(names, at_ms)))
    paths = ("/", "/destinations", "/streams/orders", "/streams/orders?range=6h&table=lag",
             "/streams/orders/lake?range=6h")  # fmt: skip
    answers = {path: client.get(path) for path in paths}
    sizes = {path: (len(it.content), it.num_bytes_downloaded) for path, it in answers.items()}
    assert max(size for size, _ in sizes.values()) < 300_000, sizes
    assert max(packed for _, packed in sizes.values()) < 40_000, sizes
    assert answers["/destinations"].text.count('class="chart spark"') == 100
    plain = client.get("/destinations", headers={"Accept-Encoding": "identity"})
    assert plain.num_bytes_downloaded == len(plain.content)


def _many(names: Sequence[str], at_ms: int) -> Overview:
    """Return an overview in which the last destination of the list has lost events."""
    shown = overview(at_ms=at_ms)
    one = destination_view("orders", "billing", at_ms=at_ms)
    lossy = destination_view("orders", "billing", at_ms=at_ms, lost=3)
    lake = shown.streams[0].destinations[1]
    views = tuple(
        replace(lossy if name == names[-1] else one, name=name, destination_id=f"orders/{name}")
        for name in names
    )
    return replace(shown, streams=(replace(shown.streams[0], destinations=(*views, lake)),))


def _with_answers(shown: Overview) -> Overview:
    """Give each destination its own success rate and last answer."""
    (orders, *others), chance = shown.streams, random.Random(7)
    views = tuple(
        replace(
            view,
            lately=RecentOutcomes(chance.randrange(9_000), failed=chance.randrange(90)),
            last_ok_at_ms=shown.at_ms - chance.randrange(10**7),
            last_refusal=LastAnswer(shown.at_ms - chance.randrange(10**7), "status_503",
                                    f"no healthy upstream: request {chance.randbytes(16).hex()}"),
        )
        for view in orders.destinations
    )  # fmt: skip
    return replace(shown, streams=(replace(orders, destinations=views), *others))


def test_of_many_those_that_lost_most_have_a_row_in_the_loss_by_minute(
    console: RunningConsole, client: httpx.Client
) -> None:
    names = [f"shop-{number}" for number in range(199)]
    console.show(_many(names, now_ms()))
    loss = client.get("/streams/orders").text.split("Loss by minute</h2>")[1].split("</section>")[0]
    assert loss.count("<tr>") == 51
    assert "50 of 200 are shown: by events lost, then by verdict." in loss
    first = loss.split("<tbody>")[1].split("</tr>")[0]
    assert "orders/shop-198" in first
    assert "3 lost at queue, of 200 events" in first
    # Equal neighbours share one cell.
    assert first.count("<rect") < 10
    assert re.search(r"\d\d:\d\d to \d\d:\d\d: nothing lost", first)


def test_of_more_than_are_read_at_once_each_has_its_own_pictures(
    console: RunningConsole, client: httpx.Client
) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    console.show(_many([f"shop-{number}" for number in range(200)], console.overview.at_ms))
    assert "Too many for one chart (over 200)" in client.get("/").text
    assert client.get("/destinations").text.count('class="chart spark"') == 1
    assert "Backlog, last 15 min" in client.get("/streams/orders/lake").text


def test_a_tenant_sees_the_past_of_its_own_streams_only(locked_console: RunningConsole) -> None:
    key, text = make_key("studio-ops", "read", tenant="studio")
    configure(locked_console, key)
    fill(locked_console.series, now_ms=locked_console.overview.at_ms)
    with httpx.Client(base_url=locked_console.url) as visitor:
        sign_in(visitor, text)
        # The sums of both streams would be 200 events a second, and 8,924 waiting events.
        everything = visitor.get("/").text
        assert "accepted 100/s, delivered 100/s" in of(everything, "throughput")
        assert "events that wait 12<" in of(everything, "backlog")
        assert visitor.get("/streams").text.count('class="chart spark"') == 1
        assert visitor.get("/destinations").text.count('class="chart spark"') == 1
        assert visitor.get("/streams/orders?range=1h").status_code == 404
        assert visitor.get("/streams/orders/lake?range=1h").status_code == 404


def test_no_id_is_twice_on_a_page(console: RunningConsole, client: httpx.Client) -> None:
    """A live update replaces the element that has its id."""
    fill(console.series, now_ms=console.overview.at_ms)
    for path in ("/", "/streams", "/streams/orders", "/streams/orders/lake?table=lag"):
        ids = re.findall(r' id="([^"]*)"', client.get(path).text)
        assert sorted(ids) == sorted(set(ids)), path


def test_a_stream_that_nobody_takes_shows_what_came_in(
    console: RunningConsole, client: httpx.Client
) -> None:
    fill(console.series, now_ms=console.overview.at_ms)
    shown = console.overview
    console.show(replace(shown, streams=(replace(shown.streams[0], destinations=()),)))
    page = client.get("/streams/orders").text
    assert "accepted 100/s" in of(page, "throughput")
    assert page.count("<figure") == 1
