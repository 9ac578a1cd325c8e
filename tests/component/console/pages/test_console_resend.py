"""People send an event again from its page: the rights, the destinations and the answer."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import httpx
import pytest
from msgspec import structs

from gateway.control.stores.resends import Resend, Resends
from shared.event.record import Origin, RecordIn
from shared.event.topics import stream_topic
from shared.proof.receipt import CoveredOffsets
from shared.proof.trail import Trail
from shared.retry.routing import route_receipt
from shared.runtime.kafka.lookup.event_search import FoundEvent
from shared.runtime.kafka.lookup.stream_pages import StreamPages
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import RunningConsole, configure, csrf_of, found_event
from tests.support.console.hostile_texts import HOSTILE_TEXTS
from tests.support.gateway.gateway_fixtures import FakeReceipts

ORIGIN = Origin(stream_topic("orders"), 1, 4711)
PAGE = "/events?stream=orders&id=e-1"
COMMAND = "hifi events resend orders --place 1:4711"


def in_the_log(event_id: str = "e-1") -> FoundEvent:
    """Return an event that was delivered to billing, but not yet sent to lake."""
    found = found_event(event_id)
    found = replace(found, envelope=replace(found.envelope, origin=ORIGIN))
    delivered = structs.replace(
        found.trail.receipts[1],
        covered=(CoveredOffsets(ORIGIN.topic, 1, 4711, 4723),),
        event_count=12,
    )
    return replace(found, trail=Trail({}, [delivered]))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Resend]:
    """Return the resends that would reach Kafka; the event and its receipt are in the log."""
    found, written = in_the_log(), list[Resend]()

    async def at(_: StreamPages, origin: Origin) -> RecordIn | None:
        return RecordIn(ORIGIN, found.stored_at_ms, None, b"{}", ()) if origin == ORIGIN else None

    async def trail(_: FakeReceipts, origins: Collection[Origin], **__: Any) -> Trail:
        known, row = Trail.of(origins), route_receipt(found.trail.receipts[0])
        known.take_sheet(RecordIn(Origin(row.topic, 0, 0), 0, row.key, row.value, row.headers))
        return known

    async def send(_: Resends, wanted: Resend) -> list[str]:
        written.append(wanted)
        return [*wanted.taken]

    monkeypatch.setattr(StreamPages, "at", at)
    monkeypatch.setattr(FakeReceipts, "trail", trail)
    monkeypatch.setattr(Resends, "send", send)
    return written


def test_a_button_sends_an_event_again_without_any_script(
    console: RunningConsole, browser: Browser, sent: list[Resend]
) -> None:
    console.events.found["orders", "e-1"] = in_the_log()
    with browser.page() as tab:
        tab.send("Emulation.setScriptExecutionDisabled", value=True)
        tab.open(console.url + PAGE)
        assert COMMAND + " --destination NAME" in tab.text("main")
        tab.click_and_load("form[action='/events/resend'] button")
        said = tab.text("p.done")
        assert "Will be sent again to billing within half a minute." in said
        assert "Not sent to lake: it has not been tried there yet." in said
        assert tab.complaints() == []
    (wanted,) = sent
    assert wanted.taken == ("orders/billing",)
    assert wanted.event.origin == ORIGIN


def test_what_the_gateway_does_not_send_again_is_one_sentence(
    console: RunningConsole, client: httpx.Client, sent: list[Resend]
) -> None:
    console.events.found["orders", "e-1"] = in_the_log()
    form = {"csrf": csrf_of(client.get(PAGE).text), "stream": "orders", "id": "e-1"}
    form["place"] = "1:4711"
    refused = client.post("/events/resend", data={**form, "destination": "lake"})
    assert refused.status_code == 409
    assert "It is not resent to lake: it has not been tried there yet." in refused.text
    assert f'href="{PAGE.replace("&", "&amp;")}"' in refused.text
    assert 'aria-label="Pages"' in refused.text
    gone = client.post("/events/resend", data={**form, "place": "1:1"})
    assert gone.status_code == 404
    assert "There is no such event in orders." in gone.text
    assert client.post("/events/resend", data={**form, "stream": "nobodys"}).status_code == 404
    forged = {**form, "csrf": "0" * 64, "destination": "billing"}
    assert client.post("/events/resend", data=forged).status_code == 403
    assert sent == []


def test_who_may_not_send_sees_how_and_is_refused(
    locked_console: RunningConsole, sent: list[Resend]
) -> None:
    reader, text = make_key("reader", "read")
    admin, opens = make_key("admin", "admin", streams=("orders",))
    configure(locked_console, reader, admin)
    locked_console.events.found["orders", "e-1"] = in_the_log()
    with httpx.Client(base_url=locked_console.url) as visitor:
        sign_in(visitor, text)
        page = visitor.get(PAGE).text
        assert f"<code>{COMMAND}</code> sends it again, with a key of the scope admin." in page
        assert "/events/resend" not in page
        form = {"csrf": csrf_of(page), "stream": "orders", "id": "e-1", "place": "1:4711"}
        assert visitor.post("/events/resend", data=form).status_code == 403
    assert sent == []
    with httpx.Client(base_url=locked_console.url, follow_redirects=True) as visitor:
        sign_in(visitor, opens)
        form["csrf"] = csrf_of(visitor.get(PAGE).text)
        done = visitor.post("/events/resend", data={**form, "destination": "billing"})
        assert "Will be sent again to billing within half a minute." in done.text
        assert visitor.post("/events/resend", data={**form, "stream": "players"}).status_code == 404
    assert len(sent) == 1


def test_an_address_says_nothing_of_its_own(console: RunningConsole, client: httpx.Client) -> None:
    console.events.found["orders", "e-1"] = in_the_log()
    for text in ("us:resent", "billing:given away", "billing", ":,:", *HOSTILE_TEXTS):
        asked = {"stream": "orders", "id": "e-1", "sent": text.encode(errors="replace").decode()}
        page = client.get("/events", params=asked).text
        assert 'class="done"' not in page, text


def test_no_id_gets_into_a_command_that_is_pasted(
    console: RunningConsole, client: httpx.Client
) -> None:
    event_id = "$(reboot); --yes 'x"
    console.events.found["orders", event_id] = in_the_log(event_id)
    page = client.get("/events", params={"stream": "orders", "id": event_id}).text
    assert f"<code>{COMMAND} --destination NAME</code>" in page
    assert page.count("reboot") == page.count("$(reboot); --yes &#x27;x") > 0
