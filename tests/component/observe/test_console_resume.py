"""A destination that stands until a person resumes it: who says so, and what is written down."""

from dataclasses import replace

import httpx
import pytest

from shared.config.destination import Destination
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms
from tests.support.console_fixtures import RunningConsole, csrf_of
from tests.support.samples import NOW_MS
from tests.unit.flow.test_flow import AWAY, told


def test_a_person_says_to_go_on_with_a_destination_that_stands(
    console: RunningConsole, client: httpx.Client
) -> None:
    before_ms = now_ms()
    held = Destination("orders", "lake", "https://lake.example/", hold_on_rejects=True)
    change(console, held)
    console.flows["orders/lake"] = FlowRecord(Flow(), state=FlowState.HELD, since_ms=before_ms)
    page = client.get("/streams/orders/lake")
    assert "held, until a person says to try it now" in page.text
    asked = client.get("/destinations/resume?stream=orders&destination=lake")
    assert "Try <code>" in asked.text
    assert "credentials first" in asked.text
    fields = {"csrf": csrf_of(asked.text), "stream": "orders", "destination": "lake"}
    page = client.post("/destinations/resume", data=fields, follow_redirects=True)
    assert page.url.path == "/streams/orders/lake"
    assert "until a person says" not in page.text
    assert "Told to try again at" in page.text
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
    assert f"{halt}, until a person says to try it now" in client.get("/streams/orders/lake").text
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
    assert "One small request tries it at once" in asked
    assert "within 5 min what a breaker, a hold or a pause kept back" in asked
    fields = {"csrf": csrf_of(asked), "stream": "orders", "destination": "lake"}
    after = client.post("/destinations/resume", data=fields, follow_redirects=True).text
    # No worker has heard it yet, and the page does not go on saying what was before.
    assert "failing, next try" not in after
    assert "Told to try again at" in after
    assert console.config.configuration.destinations["orders/lake"].resumed_at_ms > NOW_MS


def change(console: RunningConsole, one: Destination) -> None:
    before = console.config.configuration
    console.config.configuration = before.apply(one.config_key, one.to_json())
