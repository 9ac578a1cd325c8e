"""An event is found by id, key or request, in any of the caller's streams."""

import html
import re
from dataclasses import replace

import httpx
import pytest

from shared.config.configuration import Stream
from shared.event.places import Places
from shared.event.topics import stream_topic
from shared.proof.acked import AckedRequest
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    found_event,
    running_console,
)


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
    assert "Searched the index of ids in 2 streams." in page
    none = client.get("/events?id=other").text
    assert "in 2 streams: no event with this id. Choose a stream" in none
    monkeypatch.setattr(console.events, "has_index", False)
    without = client.get("/events?id=e-1").text
    assert "The index of events is switched off, so choose a stream" in without
    # None of these pages read a log.
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


def test_the_events_of_a_key_are_listed_from_all_streams(
    console: RunningConsole, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(console)
    put_in(console, "orders", "players")
    late = console.events.found["players", "e-1"]
    console.events.found["players", "e-1"] = replace(late, stored_at_ms=late.stored_at_ms + 1)
    page = client.get("/events?key=user-7").text
    # The newest event comes first.
    assert paths_of(page) == ["/events?stream=players&id=e-1", "/events?stream=orders&id=e-1"]
    for stream in ("orders", "players"):
        assert f'href="/events/newest?stream={stream}&amp;key=user-7"' in page
    assert "Searched the index of keys in 2 streams." in page
    none = client.get("/events?key=nobody").text
    assert "no event with this key. Choose a stream" in none
    in_one = client.get("/events?stream=orders&key=user-7", follow_redirects=False)
    assert in_one.headers["location"] == "/events/newest?stream=orders&key=user-7"
    both = client.get("/events?key=user-7&id=e-1").text
    assert "Fill in only one of the three" in both
    assert paths_of(both) == []
    monkeypatch.setattr(console.events, "has_index", False)
    without = client.get("/events?key=user-7").text
    assert "The index of events is switched off" in without
    assert "HIFI_OBSERVE_INDEX_BYTES_MAX" in without


REQUEST = "01990000-0000-7000-8000-000000000001"


def test_a_request_leads_to_its_events_in_their_stream(
    console: RunningConsole, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(console)
    acked = AckedRequest(REQUEST, stream_topic("orders"), count=1, ids={(0, 7): "e-1"})
    monkeypatch.setitem(console.events.requests, REQUEST, acked)
    answer = client.get(f"/events?request={REQUEST}", follow_redirects=False)
    assert answer.headers["location"] == f"/events/newest?stream=orders&request={REQUEST}"
    assert "a UUID" in client.get("/events?request=7").text
    other = REQUEST[:-1] + "2"
    assert "No request with this id" in client.get(f"/events?request={other}").text
    began = AckedRequest(other, read_until_ms=1_790_000_000_000)
    monkeypatch.setitem(console.events.requests, other, began)
    page = client.get(f"/events?request={other}").text
    assert "Not in the ledger up to" in page
    (further,) = (path for path in paths_of(page) if "from=" in path)
    client.get(further)
    assert console.events.asked[-1] == (other, "1790000000000")


def test_nobody_is_told_of_an_event_of_others() -> None:
    with running_console("keys") as running:
        theirs, text = make_key("studio", "read", tenant="studio")
        configure(running, theirs)
        running.events.found["orders", "e-1"] = found_event("e-1")
        with httpx.Client(base_url=running.url) as visitor:
            sign_in(visitor, text)
            answer = visitor.get("/events?id=e-1")
            by_key = visitor.get("/events?key=user-7").text
            acked = AckedRequest(REQUEST, stream_topic("orders"), count=1, ids={(0, 7): "e-1"})
            running.events.requests[REQUEST] = acked
            by_request = visitor.get(f"/events?request={REQUEST}")
    assert "no event with this key" in by_key
    assert "No request with this id" in by_request.text
    assert "orders" not in by_key + by_request.text + str(by_request.url)
    assert answer.status_code == 200
    assert "no event with this id" in answer.text
    assert "orders" not in answer.text


def test_an_index_that_is_behind_says_so(
    console: RunningConsole, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(console)
    monkeypatch.setattr(console.events, "places", lambda _, __: Places(is_behind=True))
    assert "does not cover all events yet: no event" in client.get("/events?id=e-1").text
