"""People try, pause, change, remove and create destinations on their pages."""

import html
import json
import re
import select
import socket
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from shared.config.credentials import Proxy
from shared.config.destination import Destination
from shared.config.values import SEALED_PREFIX
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    overview,
    running_console,
)
from tests.support.deploy.stack_fixtures import PATIENCE_S, wait_until
from tests.support.suite.samples import NOW_MS
from tests.unit.flow.test_flow import AWAY, told


def test_a_person_says_to_go_on_with_a_destination_that_stands(
    console: RunningConsole, client: httpx.Client
) -> None:
    before_ms = now_ms()
    held = Destination("orders", "lake", "https://lake.example/", hold_on_rejects=True)
    change(console, held)
    console.flows["orders/lake"] = FlowRecord(Flow(), state=FlowState.HELD, since_ms=before_ms)
    page = client.get("/streams/orders/lake")
    assert "held, until it accepts an event" in page.text
    asked = client.get("/destinations/resume?stream=orders&destination=lake")
    assert "Try <code>" in asked.text
    assert "First correct its address or its credentials" in asked.text
    fields = {"csrf": csrf_of(asked.text), "stream": "orders", "destination": "lake"}
    page = client.post("/destinations/resume", data=fields, follow_redirects=True)
    assert page.url.path == "/streams/orders/lake"
    assert "held, until" not in page.text
    assert "Retry requested at" in page.text
    stored = console.config.configuration.destinations["orders/lake"]
    assert stored == held.resumed(at_ms=stored.resumed_at_ms)
    assert stored.resumed_at_ms > before_ms
    again = client.get("/destinations/resume?stream=orders&destination=lake")
    assert "is resumed" in again.text
    assert client.post("/destinations/resume", data={**fields, "stream": "x"}).status_code == 404


@pytest.mark.parametrize("halt", ["paused", "disabled"])
def test_what_its_owner_has_halted_shows_and_can_go_on(
    console: RunningConsole, client: httpx.Client, halt: str
) -> None:
    one = Destination("orders", "lake", "https://lake.example/")
    change(console, replace(one, is_paused=halt == "paused", is_disabled=halt == "disabled"))
    assert f"{halt}, until a person tries it now" in client.get("/streams/orders/lake").text
    assert halt in client.get("/destinations").text
    asked = client.get("/destinations/resume?stream=orders&destination=lake").text
    fields = {"csrf": csrf_of(asked), "stream": "orders", "destination": "lake"}
    client.post("/destinations/resume", data=fields)
    stored = console.config.configuration.destinations["orders/lake"]
    assert (stored.is_paused, stored.is_disabled) == (False, False)


def test_one_that_is_failing_can_be_tried_now_and_the_page_says_what_follows(
    console: RunningConsole, client: httpx.Client
) -> None:
    down = told(Flow(), *[AWAY] * 10)
    console.flows["orders/lake"] = FlowRecord(Flow()).with_flow(down, now_ms=NOW_MS)
    page = client.get("/streams/orders/lake").text
    assert "failing, next try at 22:13:50" in page
    assert "breaker open since 22:13:20, next try at 22:13:50" in client.get("/destinations").text
    asked = client.get("/destinations/resume?stream=orders&destination=lake").text
    assert "one small request tries it at once" in asked
    assert "within 5 min if a breaker, a hold or a pause kept them back" in asked
    fields = {"csrf": csrf_of(asked), "stream": "orders", "destination": "lake"}
    after = client.post("/destinations/resume", data=fields, follow_redirects=True).text
    # No worker knows of the request yet, but the page no longer shows the old state.
    assert "failing, next try" not in after
    assert "Retry requested at" in after
    assert console.config.configuration.destinations["orders/lake"].resumed_at_ms > NOW_MS


def test_a_held_one_is_tried_by_itself_and_its_page_says_when(
    console: RunningConsole, client: httpx.Client
) -> None:
    held = msgspec.structs.replace(told(Flow(), *[AWAY] * 10), held_at_ms=NOW_MS)
    console.flows["orders/lake"] = FlowRecord(Flow()).with_flow(held, now_ms=NOW_MS)
    assert "held, next try at 22:13:50" in client.get("/streams/orders/lake").text


def test_one_is_paused_and_removed_by_forms(console: RunningConsole, client: httpx.Client) -> None:
    one = Destination("orders", "lake", "https://lake.example/", rate_per_s=7)
    change(console, one)
    page = client.get("/streams/orders/lake").text
    for what in ("settings", "pause", "remove"):
        path = f"/destinations/{what}?stream=orders&amp;destination=lake"
        assert f'href="{path}"' in page, what
    asked = client.get("/destinations/pause?stream=orders&destination=lake").text
    assert "hifi destinations pause orders lake" in asked
    after = client.post("/destinations/pause", data=fields_of(asked), follow_redirects=True)
    assert after.url.path == "/streams/orders/lake"
    assert "paused, until a person tries it now" in after.text
    assert "/destinations/pause" not in after.text
    assert console.config.configuration.destinations["orders/lake"] == replace(one, is_paused=True)
    # The page was read before the change, so its version is outdated.
    assert client.post("/destinations/pause", data=fields_of(asked)).status_code == 412
    asked = client.get("/destinations/remove?stream=orders&destination=lake").text
    assert "events that wait for a retry become dead letters" in asked
    after = client.post("/destinations/remove", data=fields_of(asked), follow_redirects=True)
    assert after.url.path == "/streams/orders"
    assert "orders/lake" not in console.config.configuration.destinations
    assert client.get("/destinations/remove?stream=orders&destination=lake").status_code == 404


def test_settings_are_changed_as_json_and_what_is_wrong_is_said_beside_them(
    console: RunningConsole, client: httpx.Client
) -> None:
    change(console, Destination("orders", "lake", "https://lake.example/", rate_per_s=7))
    asked = client.get("/destinations/settings?stream=orders&destination=lake").text
    before = settings_of(asked)
    assert (before["url"], before["rate_per_s"]) == ("https://lake.example/", 7)
    fields = fields_of(asked)
    for wrong, says, status in (
        ("{", "This is not valid JSON", 422),
        ("[]", "must be a JSON object", 422),
        (json.dumps(before | {"rate_per_s": -1}), "rate_per_s", 400),
        (json.dumps(before | {"url": "<b>"}), "url", 400),
    ):
        answer = client.post("/destinations/settings", data={**fields, "settings": wrong})
        assert (answer.status_code, says in answer.text) == (status, True), wrong
        # The page repeats the typed text, escaped.
        assert html.escape(wrong) in answer.text
    wanted = {**fields, "settings": json.dumps(before | {"rate_per_s": 9})}
    after = client.post("/destinations/settings", data=wanted, follow_redirects=True)
    assert after.url.path == "/streams/orders/lake"
    assert console.config.configuration.destinations["orders/lake"].rate_per_s == 9
    assert client.post("/destinations/settings", data=wanted).status_code == 412


def test_a_form_shows_a_proxys_password_as_a_placeholder_and_keeps_it(
    console: RunningConsole, client: httpx.Client
) -> None:
    sealed = SEALED_PREFIX + "s3cret"
    proxy = Proxy("http://proxy.example:3128", "hifi", sealed)
    change(console, Destination("orders", "lake", "https://lake.example/", proxy=proxy))
    assert sealed not in client.get("/streams/orders/lake").text
    asked = client.get("/destinations/settings?stream=orders&destination=lake").text
    assert sealed not in asked
    before = settings_of(asked)
    assert set(before["proxy"].pop("password")) == {"sealed"}
    assert before["proxy"] == {"url": proxy.url, "username": "hifi"}
    wanted = fields_of(asked) | {"settings": json.dumps(settings_of(asked) | {"http2": True})}
    after = client.post("/destinations/settings", data=wanted, follow_redirects=True)
    assert (after.status_code, after.url.path) == (200, "/streams/orders/lake")
    stored = console.config.configuration.destinations["orders/lake"]
    assert (stored.proxy, stored.http2) == (proxy, True)


def test_one_is_made_by_a_form_and_none_is_overwritten(
    console: RunningConsole, client: httpx.Client
) -> None:
    assert 'href="/destinations/new"' in client.get("/destinations").text
    fields = {
        "csrf": csrf_of(client.get("/destinations/new").text),
        "stream": "orders",
        "destination": "barn",
        "settings": '{"url": "https://barn.example/"}',
    }
    for wrong, says in (
        ({"stream": "nowhere"}, "nowhere"),
        ({"destination": ""}, "a stream and a name"),
        ({"destination": "Not a name"}, "name"),
        ({"settings": "{}"}, "url"),
    ):
        answer = client.post("/destinations/new", data=fields | wrong)
        assert (400 <= answer.status_code < 500, says in answer.text) == (True, True), wrong
    after = client.post("/destinations/new", data=fields, follow_redirects=True)
    assert after.url.path == "/streams/orders/barn"
    made = console.config.configuration.destinations["orders/barn"]
    assert made.url == "https://barn.example/"
    again = client.post("/destinations/new", data=fields)
    assert (again.status_code, "orders already has a destination barn." in again.text) == (
        409,
        True,
    )


def test_what_is_new_overwrites_nothing_that_the_console_has_not_heard_of(
    console: RunningConsole, client: httpx.Client
) -> None:
    one = Destination("orders", "lake", "https://lake.example/", rate_per_s=7)
    change(console, one)
    asked = client.get("/destinations/settings?stream=orders&destination=lake").text
    # A form for a new destination has no version.
    fields = fields_of(asked) | {"version": "", "settings": '{"url": "https://new.example/"}'}
    answer = client.post("/destinations/settings", data=fields)
    assert (answer.status_code, "There is such an object already." in answer.text) == (412, True)
    assert console.config.configuration.destinations["orders/lake"] == one


def test_a_form_is_as_long_as_what_the_gateway_takes(
    console: RunningConsole, client: httpx.Client
) -> None:
    change(console, Destination("orders", "lake", "https://lake.example/"))
    asked = client.get("/destinations/settings?stream=orders&destination=lake").text
    fields, before = fields_of(asked), settings_of(asked)
    long = [f"/{'member-' * 40}{number}" for number in range(100)]
    wanted = fields | {"settings": json.dumps(before | {"fields": long})}
    after = client.post("/destinations/settings", data=wanted, follow_redirects=True)
    assert after.url.path == "/streams/orders/lake"
    assert list(console.config.configuration.destinations["orders/lake"].fields) == long
    too_long = {**fields, "settings": json.dumps(before | {"url": "x" * 1_048_576})}
    assert client.post("/destinations/settings", data=too_long).status_code == 413
    too_long["settings"] = "x" * 4_000_000
    assert client.post("/destinations/settings", data=too_long).status_code == 413
    # A form without a document must be short.
    assert client.post("/destinations/pause", data=wanted).status_code == 413


def test_few_long_forms_are_read_at_a_time(console: RunningConsole, client: httpx.Client) -> None:
    asked = client.get("/destinations/new").text
    long = {
        "csrf": csrf_of(asked),
        "stream": "orders",
        "destination": "x",
        "settings": "x" * 20_000,
    }
    cookie = f"hifi-console={client.cookies['hifi-console']}"
    head = (
        f"POST /destinations/new HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 30000\r\n\r\n"
    )
    with ExitStack() as slow:
        # The first two bodies that arrive are read; the third is refused at once.
        wires = [
            slow.enter_context(socket.create_connection(("127.0.0.1", console.port)))
            for _ in range(3)
        ]
        for wire in wires:
            wire.sendall(head.encode() + b"x" * 20_000)
        (refused, *others), *_ = select.select(wires, (), (), PATIENCE_S)
        assert (refused.recv(12), others) == (b"HTTP/1.1 503", [])
        assert client.post("/destinations/new", data=long).status_code == 503
        short = {**long, "settings": "x"}
        assert client.post("/destinations/new", data=short).status_code == 422
    wait_until(
        lambda: client.post("/destinations/new", data=long).status_code == 422, what="both are gone"
    )


def test_who_may_only_read_changes_nothing_and_nobody_changes_what_is_of_others() -> None:
    with running_console("keys") as running:
        reader, reads = make_key("reader", "read")
        theirs, changes = make_key("studio", "admin", tenant="studio")
        configure(running, reader, theirs)
        running.show(overview())
        change(running, Destination("orders", "lake", "https://lake.example/"))
        asked = "stream=orders&destination=lake"
        for text, status in ((reads, 403), (changes, 404)):
            with httpx.Client(base_url=running.url) as visitor:
                sign_in(visitor, text)
                for what in ("pause", "remove", "settings"):
                    answer = visitor.get(f"/destinations/{what}?{asked}")
                    assert answer.status_code == status, what
                page = visitor.get("/destinations").text
                assert ("New destination" in page) is (text == changes)
                fields = {
                    "csrf": csrf_of(page),
                    "stream": "orders",
                    "destination": "mine",
                    "settings": '{"url": "https://mine.example/"}',
                }
                assert visitor.post("/destinations/new", data=fields).status_code == status
        assert "orders/mine" not in running.config.configuration.destinations


def fields_of(page: str) -> dict[str, str]:
    """Return the hidden fields of a form."""
    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page)
    return {name: html.unescape(value) for name, value in hidden}


def settings_of(page: str) -> dict[str, Any]:
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
    assert found is not None
    settings: dict[str, Any] = json.loads(html.unescape(found[1]))
    return settings


def change(console: RunningConsole, one: Destination) -> None:
    before = console.config.configuration
    console.config.configuration = before.apply(one.config_key, one.to_json())
