"""An event found by its id alone, whichever of one's streams it is in."""

import html
import re
from dataclasses import replace

import httpx
import pytest

from shared.config.configuration import Stream
from shared.event.places import Places
from tests.component.observe.test_console_access import make_key, sign_in
from tests.support.browser import Browser
from tests.support.console_fixtures import RunningConsole, configure, found_event, running_console


def put_in(console: RunningConsole, *streams: str) -> None:
    for stream in streams:
        made = Stream(stream)
        before = console.config.configuration
        console.config.configuration = before.apply(made.config_key, made.to_json())
        found = found_event("e-1")
        envelope = replace(found.envelope, stream=stream)
        console.events.found[stream, "e-1"] = replace(found, envelope=envelope)


def paths_of(page: str) -> list[str]:
    return [html.unescape(path) for path in re.findall(r'href="(/events\?[^"]*)"', page)]


def test_the_form_finds_an_event_that_is_in_one_stream(
    console: RunningConsole, browser: Browser
) -> None:
    configure(console)
    put_in(console, "players")
    with browser.page() as tab:
        tab.open(f"{console.url}/events")
        tab.run("document.querySelector('input[name=id]').value = 'e-1'")
        tab.click_and_load("form[action='/events'] button")
        assert "/events?stream=players&id=e-1" in tab.run("location.href")
        assert "POST accepted by the gateway" in tab.text("main")
        assert tab.complaints() == []


def test_an_id_of_several_streams_or_of_none_is_said_so(
    console: RunningConsole, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(console)
    put_in(console, "orders", "players")
    asked_count = len(console.events.asked)
    page = client.get("/events?id=e-1").text
    streams = ["/events?stream=orders&id=e-1", "/events?stream=players&id=e-1"]
    assert paths_of(page) == streams
    assert "The index of ids was asked of 2 streams." in page
    none = client.get("/events?id=other").text
    assert "asked of 2 streams: it has none of this id. Choose a stream" in none
    monkeypatch.setattr(console.events, "has_index", False)
    without = client.get("/events?id=e-1").text
    assert "There is no index of ids: choose the stream that it is in." in without
    # Nobody's log was read for any of it.
    assert len(console.events.asked) == asked_count


def test_more_streams_than_a_page_tells_of_are_all_reached(
    console: RunningConsole, client: httpx.Client
) -> None:
    names = [f"stream-{number:03}" for number in range(120)]
    put_in(console, *names)
    seen: list[str] = []
    path, pages = "/events?id=e-1", 0
    while path:
        further = ""
        for each in paths_of(client.get(path).text):
            stream = re.search(r"stream=([^&]*)&", each)
            seen += [stream[1]] if stream else []
            further = further if stream else each
        path, pages = further, pages + 1
    assert ([each for each in seen if each in names], pages) == (names, 3)


def test_nobody_is_told_of_an_event_of_others() -> None:
    with running_console("keys") as running:
        theirs, text = make_key("studio", "read", tenant="studio")
        configure(running, theirs)
        running.events.found["orders", "e-1"] = found_event("e-1")
        with httpx.Client(base_url=running.url) as visitor:
            sign_in(visitor, text)
            answer = visitor.get("/events?id=e-1")
    assert answer.status_code == 200
    assert "it has none of this id" in answer.text
    assert "orders" not in answer.text


def test_an_index_that_is_behind_says_so(
    console: RunningConsole, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(console)
    monkeypatch.setattr(console.events, "places", lambda _, __: Places(is_behind=True))
    assert "has not got everywhere yet: it has none" in client.get("/events?id=e-1").text
