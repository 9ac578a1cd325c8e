"""The console acts through a gateway that is down, knows other keys, or accepts requests."""

import html
import re
from dataclasses import replace

import httpx

from shared.config.destination import Destination
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    found_event,
    letter,
    overview,
    running_console,
)


def test_a_gateway_that_is_away_is_one_sentence() -> None:
    with running_console("off", gateway="http://127.0.0.1:9") as running:
        configure(running)
        running.show(overview())
        with httpx.Client(base_url=running.url) as client:
            running.events.found["orders", "e-1"] = found_event("e-1")
            csrf = csrf_of(client.get("/events?stream=orders&id=e-1").text)
            form = {"csrf": csrf, "stream": "orders", "destination": "lake"}
            answers = [client.get("/dead/letters"), client.post("/destinations/resume", data=form)]
            for answer in answers:
                assert answer.status_code == 503
                assert "No gateway answers at http://127.0.0.1:9" in answer.text
                assert "HIFI_OBSERVE_CONSOLE_GATEWAY" in answer.text
            assert client.get("/").status_code == 200


def test_the_gateway_judges_the_key_of_who_signed_in(locked_console: RunningConsole) -> None:
    admin, text = make_key("admin", "admin", streams=("orders",))
    configure(locked_console, admin)
    locked_console.dead.letters = [letter("e-1"), letter("e-2", stream="players")]
    with httpx.Client(base_url=locked_console.url, follow_redirects=True) as visitor:
        sign_in(visitor, text)
        page = visitor.get("/dead/redrive")
        assert "Send 1 dead letter again?" in page.text
        fields = {"csrf": csrf_of(page.text), "confirmed": "1"}
        assert "1 sent again." in visitor.post("/dead/redrive", data=fields).text
    (order,) = locked_console.dead.redrives
    assert order.stream == "orders"


def test_what_came_after_an_event_had_ended_is_looked_at_if_somebody_asks(
    console: RunningConsole, client: httpx.Client
) -> None:
    found = found_event("e-1")
    console.events.found["orders", "e-1"] = found
    page = client.get("/events?stream=orders&id=e-1").text
    assert "whether it was sent again" not in page
    to = [each.id for each in console.config.configuration.destinations_of("orders")]
    assert to
    assert list(console.events.destination_ids) == to
    found.trail.ends_there = True
    page = client.get("/events?stream=orders&id=e-1").text
    assert "This page has not checked whether it was sent again after that." in page
    assert 'href="/events?stream=orders&amp;id=e-1&amp;all=1"' in page
    client.get("/events?stream=orders&id=e-1&all=1")
    assert list(console.events.destination_ids) == []


def test_every_dead_letter_can_be_seen_page_by_page(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.dead.letters = [letter(f"e-{number}") for number in range(289)]
    seen: list[str] = []
    page = client.get("/dead/letters?reason=status_4*").text
    assert "289 dead letters</strong> match, the newest 20 are shown." in page
    for count, more in (*((20, True),) * 14, (9, False)):
        ids = re.findall(r"stream=orders&amp;id=(e-[0-9]+)", page)
        assert len(ids) == count
        seen += ids
        older = re.search(r'href="(/dead/letters\?[^"]*before=[^"]*)"', page)
        assert bool(older) is more
        if older:
            assert "reason=status_4" in older[1]
            page = client.get(html.unescape(older[1])).text
    assert "289 dead letters</strong> match; 9 older ones are shown." in page
    assert ">Newest</a>" in page
    assert sorted(seen) == sorted(f"e-{number}" for number in range(289))


def test_a_console_that_asks_nobody_cannot_pass_a_gateway_that_does() -> None:
    with running_console("off", gateway_auth="keys") as running:
        configure(running)
        running.show(overview())
        answer = httpx.get(f"{running.url}/dead/letters")
        assert answer.status_code == 401
        assert "HIFI_OBSERVE_CONSOLE_AUTH=keys" in answer.text


def test_what_somebody_has_changed_since_the_question_is_said_and_not_changed(
    console: RunningConsole, client: httpx.Client
) -> None:
    paused = Destination("orders", "lake", "https://lake.example/in", is_paused=True)
    put(console, paused)
    asked = client.get("/destinations/resume?stream=orders&destination=lake").text
    version = re.search(r'name="version" value="([^"]+)"', asked)
    assert version
    form = {
        "csrf": csrf_of(asked),
        "stream": "orders",
        "destination": "lake",
        "version": html.unescape(version[1]),
    }
    mended = replace(paused, url="https://lake.example/v2")
    put(console, mended)
    answer = client.post("/destinations/resume", data=form)
    assert answer.status_code == 412
    assert "Somebody else has changed url" in answer.text
    assert console.config.configuration.destinations[paused.id] == mended
    put(console, paused)
    assert client.post("/destinations/resume", data=form).status_code == 303
    assert not console.config.configuration.destinations[paused.id].is_paused


def put(console: RunningConsole, destination: Destination) -> None:
    before = console.config.configuration
    console.config.configuration = before.apply(destination.config_key, destination.to_json())
