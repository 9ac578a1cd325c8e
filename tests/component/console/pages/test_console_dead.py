"""Pages of dead letters, grouped by reason and one by one: links, bounds, who sees what."""

import html
import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace

import httpx
import pytest

from shared.event.envelope import Envelope
from shared.event.times import DAY_MS, MINUTE_MS
from shared.proof.last_answer import DEAD_STEP_MS, DeadGroup
from shared.proof.overview import Overview, RemovedView
from shared.retry.dead_letter import Letter
from shared.runtime.clock import now_ms
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    letter,
    overview,
    running_console,
)
from tests.support.console.hostile_texts import HOSTILE_TEXTS


def a_group(
    reason: str = "status_400", answer: str = "", *, count: int = 1, ago_ms: int = MINUTE_MS
) -> DeadGroup:
    at_ms = now_ms() - ago_ms
    step_ms = at_ms - at_ms % DEAD_STEP_MS
    return DeadGroup(reason, answer, count, at_ms - DAY_MS, at_ms, {step_ms: count})


def gave_up(shown: Overview, destination_id: str, *groups: DeadGroup) -> Overview:
    """Return an overview in which a destination has these dead letters."""
    streams = tuple(
        replace(
            stream,
            destinations=tuple(
                replace(view, dead_groups=groups) if view.destination_id == destination_id else view
                for view in stream.destinations
            ),
        )
        for stream in shown.streams
    )
    return replace(shown, streams=streams)


def answered(event_id: str, detail: str) -> Letter:
    """Return a dead letter with this answer of the destination."""
    made = letter(event_id)
    assert isinstance(made.opened, Envelope)
    history = made.opened.history
    assert history is not None
    told = replace(history, cause="status_400", last_status=400, last_detail=detail)
    return replace(made, opened=replace(made.opened, history=told), dead_at_ms=now_ms())


def rows_of(page: str) -> list[str]:
    return between(page, "<tbody>", "</tbody>").split("</tr>")[:-1]


def links_of(part: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'href="([^"]*)"', part)]


def between(page: str, begin: str, end: str) -> str:
    return page.partition(begin)[2].partition(end)[0]


@pytest.fixture
def filled(console: RunningConsole) -> RunningConsole:
    groups = [
        a_group("status_400", "no such customer #", count=12, ago_ms=5 * MINUTE_MS),
        a_group("retries_exhausted", "503 no healthy upstream", count=3),
    ]
    shown = gave_up(overview(), "orders/billing", *groups)
    console.show(gave_up(shown, "players/stats", a_group("status_400", count=7, ago_ms=DAY_MS)))
    return console


def test_what_was_given_up_is_grouped_and_each_group_leads_to_its_letters(
    filled: RunningConsole, client: httpx.Client
) -> None:
    page = client.get("/dead").text
    assert "<strong>22 dead letters</strong> in 3 groups." in page
    newest, older, oldest = rows_of(page)
    assert "503 no healthy upstream" in newest
    assert "players/stats" in oldest
    for said in ("no such customer #", "orders/billing", ">12<", "12 in total, at most 12 in 6 h."):
        assert said in older
    asked = "stream=orders&destination=billing&reason=status_400"
    letters, again = links_of(older)
    assert letters.startswith(f"/dead/letters?{asked}&answer=no+such+customer")
    assert again == letters.replace("/dead/letters?", "/dead/redrive?")
    filled.dead.letters = [
        answered("e-1", "no such customer 17"),
        answered("e-2", "no such customer a-99-z"),
        answered("e-3", "no such order 17"),
    ]
    shown = client.get(letters).text
    assert "2 dead letters</strong> match." in shown
    assert "answer <code>no such customer #</code>" in shown
    assert "Send 2 dead letters again?" in client.get(again).text


@pytest.mark.usefixtures("filled")
def test_filters_are_lists_of_what_there_is(client: httpx.Client) -> None:
    def options(page: str, name: str) -> list[str]:
        field = between(page, f'<select name="{name}">', "</select>")
        return re.findall(r'<option value="([^"]*)"', field)

    page = client.get("/dead").text
    assert options(page, "destination") == ["", "orders/billing", "players/stats"]
    assert options(page, "reason") == ["", "retries_exhausted", "status_400"]
    narrowed = client.get("/dead?destination=orders/billing&reason=status_400").text
    assert "12 dead letters</strong> in 1 group." in narrowed
    # A link may give only the destination's short name; a reason without letters is kept, too.
    short = client.get("/dead?stream=orders&destination=billing&reason=status_4*").text
    assert options(short, "destination") == ["", "orders/billing"]
    assert options(short, "reason")[1] == "status_4*"
    assert "There are no dead letters here." in short
    letters = client.get("/dead/letters").text
    assert options(letters, "destination") == ["", "orders/billing", "players/stats"]


def test_one_letter_is_sent_again_from_its_row_without_any_script(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.dead.letters = [letter("e-1"), letter("e-2"), letter("e-2", stream="players")]
    row = next(each for each in rows_of(client.get("/dead/letters").text) if "=e-1" in each)
    trace, again = links_of(row)
    assert trace == "/events?stream=orders&id=e-1"
    page = client.get(again).text
    assert "Send 1 dead letter again?" in page
    form = between(page, 'action="/dead/redrive"', "</form>")
    fields = {name: html.unescape(value)
              for name, value in re.findall(r'name="([a-z_]+)" value="([^"]*)"', form)}  # fmt: skip
    done = client.post("/dead/redrive", data=fields, follow_redirects=True).text
    assert "1 sent again." in done
    (order,) = console.dead.redrives
    assert (order.stream, order.destination, order.event_id) == ("orders", "orders/billing", "e-1")
    # The search covers only the millisecond in which the event died.
    (one,) = [each for each in console.dead.letters if each.event_id == "e-1"]
    assert (order.from_ms, order.to_ms) == (one.dead_at_ms, one.dead_at_ms + 1)
    assert "sent again" in rows_of(done)[0]


def test_a_tenant_sees_what_its_own_destinations_gave_up_and_a_reader_sends_nothing() -> None:
    with running_console("keys") as running:
        key, text = make_key("studio-ops", "read", tenant="studio")
        configure(running, key)
        shown = gave_up(overview(), "orders/billing", a_group("status_418", count=40))
        shown = gave_up(shown, "players/stats", a_group("status_400", count=7))
        gone = [RemovedView(stream, "gone", 1, shown.streams[0].destinations[0].balance,
                            (a_group("status_410", count=2),))
                for stream in ("orders", "players")]  # fmt: skip
        running.show(replace(shown, removed=tuple(gone)))
        with httpx.Client(base_url=running.url) as visitor:
            sign_in(visitor, text)
            page = visitor.get("/dead").text
            assert "9 dead letters</strong> in 2 groups." in page
            assert "orders" not in page
            assert "status_418" not in page
            assert "Send again …" not in page
            assert visitor.post("/dead/export", data={"csrf": csrf_of(page)}).status_code == 403


def test_groups_need_neither_the_gateway_nor_kafka() -> None:
    with running_console("off", gateway="http://127.0.0.1:9") as running:
        configure(running)
        running.show(gave_up(overview(), "orders/billing", a_group(count=3)))
        page = httpx.get(f"{running.url}/dead")
        assert page.status_code == 200
        assert "3 dead letters</strong> in 1 group." in page.text


def test_what_kafka_has_no_more_is_in_no_group(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.show(gave_up(overview(), "orders/billing", a_group(ago_ms=31 * DAY_MS)))
    assert "There are no dead letters here." in client.get("/dead").text


def _very_many(count: int) -> Overview:
    shown = overview()
    one = shown.streams[0].destinations[0]
    groups = tuple(
        a_group("status_400", f"no such thing {chr(97 + nth)} #", count=9) for nth in range(20)
    )
    views = tuple(
        replace(one, name=f"shop-{number}", destination_id=f"orders/shop-{number}",
                dead_groups=groups)
        for number in range(count // len(groups))
    )  # fmt: skip
    stream = replace(shown.streams[0], destinations=views)
    return replace(shown, streams=(stream, *shown.streams[1:]))


def test_ten_thousand_groups_are_short_pages_that_are_made_at_once(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.show(_very_many(10_000))
    begun_s = time.process_time()
    answer = client.get("/dead")
    took_s = time.process_time() - begun_s
    assert "90,000 dead letters</strong> in 10,000 groups; 1 to 20 are shown" in answer.text
    assert len(answer.content) < 100_000
    # It takes 25 ms of processor time; other programs use the cores, too.
    assert took_s < 1.0
    assert "/dead?page=2" in links_of(answer.text)
    last = client.get("/dead?page=99999").text
    assert "9,981 to 10,000 are shown" in last
    assert "Next page" not in last
    # A stream without dead letters still says so.
    few = client.get("/dead?stream=players").text
    assert "There are no dead letters here." in few


@pytest.mark.parametrize("path", ["/dead", "/dead/letters"])
def test_a_page_is_short_on_a_phone(console: RunningConsole, browser: Browser, path: str) -> None:
    console.show(_very_many(1_000))
    console.dead.letters = [
        answered(f"e-{number}", '{"error": "no such customer", "id": 17}') for number in range(300)
    ]
    with browser.page(width=390, height=844, is_phone=True) as tab:
        tab.open(console.url + path)
        assert tab.run("document.querySelectorAll('tbody tr').length") == 20
        assert tab.run("document.documentElement.scrollWidth") <= 390
        assert tab.run("document.documentElement.scrollHeight") < 5_000


def test_what_matches_is_downloaded_by_who_may_read_it(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.dead.letters = [letter("e-1"), letter("e-2", reason="status_401")]
    page = client.get("/dead/letters?reason=status_401").text
    assert "hifi dead export --reason status_401" in page
    fields = {"csrf": csrf_of(page), "reason": "status_401"}
    answer = client.post("/dead/export", data=fields)
    assert answer.headers["content-disposition"].startswith("attachment;")
    (line,) = answer.text.splitlines()
    assert json.loads(line)["deadLetterReason"] == "status_401"


@pytest.fixture
def hostile(console: RunningConsole) -> Sequence[str]:
    texts = [text.encode(errors="replace").decode() for text in HOSTILE_TEXTS[:20]]
    groups = [a_group(text, text, count=2) for text in texts]
    console.show(gave_up(overview(), "orders/billing", *groups))
    return texts


def test_hostile_answers_are_shown_as_texts(
    console: RunningConsole, browser: Browser, hostile: Sequence[str]
) -> None:
    with browser.page() as tab:
        tab.open(f"{console.url}/dead")
        assert tab.run("document.querySelectorAll('tbody tr').length") == len(hostile)
        assert tab.run("document.querySelectorAll('main script, main img').length") == 0
        for nth in range(0, len(hostile), 7):
            tab.run(f"location.href = document.querySelectorAll('tbody th a')[{nth}].href")
            tab.wait_for("document.querySelector('h1')?.innerText.endsWith('one by one')",
                         what="the letters are requested")  # fmt: skip
            tab.open(f"{console.url}/dead")
        assert tab.complaints() == []
