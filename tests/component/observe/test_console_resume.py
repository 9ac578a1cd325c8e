"""A destination that stands until a person resumes it: who says so, and what is written down."""

from dataclasses import replace

import httpx
import pytest

from shared.config.destination import Destination
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms
from tests.support.console_fixtures import RunningConsole, csrf_of


def test_a_person_says_to_go_on_with_a_destination_that_stands(
    console: RunningConsole, client: httpx.Client
) -> None:
    before_ms = now_ms()
    held = Destination("orders", "lake", "https://lake.example/", hold_on_rejects=True)
    change(console, held)
    console.flows["orders/lake"] = FlowRecord(Flow(), state=FlowState.HELD, since_ms=before_ms)
    page = client.get("/streams/orders/lake")
    assert "held, until a person resumes it" in page.text
    asked = client.get("/destinations/resume?stream=orders&destination=lake")
    assert "Resume <code>" in asked.text
    assert "credentials first" in asked.text
    fields = {"csrf": csrf_of(asked.text), "stream": "orders", "destination": "lake"}
    page = client.post("/destinations/resume", data=fields, follow_redirects=True)
    assert page.url.path == "/streams/orders/lake"
    assert "until a person resumes it" not in page.text
    assert "Resumed at" in page.text
    stored = console.config.configuration.destinations["orders/lake"]
    assert stored == held.resumed(at_ms=stored.resumed_at_ms)
    assert stored.resumed_at_ms > before_ms
    again = client.get("/destinations/resume?stream=orders&destination=lake")
    assert "goes on" in again.text
    assert client.post("/destinations/resume", data={**fields, "stream": "x"}).status_code == 404


@pytest.mark.parametrize("halt", ["paused", "disabled"])
def test_what_its_owner_has_halted_shows_and_can_go_on(
    console: RunningConsole, client: httpx.Client, halt: str
) -> None:
    one = Destination("orders", "lake", "https://lake.example/")
    change(console, replace(one, is_paused=halt == "paused", is_disabled=halt == "disabled"))
    assert f"{halt}, until a person resumes it" in client.get("/streams/orders/lake").text
    assert halt in client.get("/destinations").text
    asked = client.get("/destinations/resume?stream=orders&destination=lake").text
    fields = {"csrf": csrf_of(asked), "stream": "orders", "destination": "lake"}
    client.post("/destinations/resume", data=fields)
    stored = console.config.configuration.destinations["orders/lake"]
    assert (stored.is_paused, stored.is_disabled) == (False, False)


def change(console: RunningConsole, one: Destination) -> None:
    before = console.config.configuration
    console.config.configuration = before.apply(one.config_key, one.to_json())
