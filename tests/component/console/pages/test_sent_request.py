"""An event's page shows the request of each attempt as it was sent, without its secrets."""

from dataclasses import replace

import httpx
import pytest

from console.pages.events.event_page import _REQUESTS_MAX
from console.pages.events.sent_request import (
    HEADERS_MAX,
    MASK,
    SentRequest,
    headers,
    request_shown,
    shown_url,
)
from shared.config.credentials import Basic, Bearer, OAuth2
from shared.config.destination import Compression, Destination
from shared.config.values import SEALED_PREFIX
from shared.proof.receipt import ReceiptOutcome
from shared.proof.trail import Trail
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.component.console.pages.test_console_changes import change
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    found_event,
    running_console,
)
from tests.support.delivery.deliver_runs import events, plan_for, receipts, run, sample
from tests.support.servers.scripted_destination import in_turn, scripted_destination

PAGE = "/events?stream=orders&id=e-1"
SENT = SentRequest("orders/billing", "b-1", 12, 1, 1, 1_790_000_000_999)
# The header with the length of the request is not shown.
UNSAID = {"content-length"}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_is_shown_is_what_a_receiver_got(compression: Compression) -> None:
    with scripted_destination(in_turn(503, 503, 200)) as destination:
        to = sample(destination, compression=compression, headers={"x-shop": "7"})
        with_user = to.url.replace("//", "//me:secret@") + "?token=secret"
        to = replace(to, url=with_user)
        (receipt,) = receipts(run(events(3), plan_for(to)))
        got = [request.headers for request in destination.requests]
    assert receipt.outcome is ReceiptOutcome.DELIVERED
    last = SentRequest.of_last(receipt)
    assert last is not None
    shown = [SentRequest.of_failed(receipt, 0), SentRequest.of_failed(receipt, 1), last]
    for sent, request in zip(shown, got, strict=True):
        told = dict(headers(sent, to))
        kept = {name.lower(): value for name, value in request.items()}
        assert kept.pop("authorization").startswith("Basic ")
        assert told.pop("authorization") == f"Basic {MASK}"
        # The start of a failed attempt is computed from its end.
        began_s = int(kept.pop("webhook-timestamp"))
        assert abs(int(told.pop("webhook-timestamp")) - began_s) <= 1
        assert told == {name: kept[name] for name in kept if name not in UNSAID}
    page = str(request_shown(last, to))
    assert "secret" not in page
    assert f"/hook?token={MASK}" in page
    packed = "" if compression == "none" else ", compressed with gzip"
    assert f"Body: a JSON array of 3 events, including this one{packed}." in page


def test_no_secret_is_shown_wherever_it_was_put() -> None:
    sealed = SEALED_PREFIX + "secret"
    to = Destination(
        "orders", "billing", "https://a.example/in",
        headers={"x-api-key": "secret", "X-Shop": "7", "User-Agent": "ours"},
        secret_headers={"x-pass": sealed}, signing_secrets=(sealed,),
    )  # fmt: skip
    told = dict(headers(SENT, to))
    assert (told["x-api-key"], told["x-pass"], told["webhook-signature"]) == (MASK, MASK, MASK)
    assert (told["X-Shop"], told["User-Agent"], "user-agent" in told) == ("7", "ours", False)
    for auth, scheme in (
        (Basic("me", sealed), "Basic"),
        (Bearer(sealed), "Bearer"),
        (OAuth2("https://a.example/token", "me", sealed), "Bearer"),
    ):
        assert dict(headers(SENT, replace(to, auth=auth)))["authorization"] == f"{scheme} {MASK}"
    assert shown_url("https://me:secret@a.example:8443/in?a=secret&b=#secret") == (
        f"https://a.example:8443/in?a={MASK}&b={MASK}"
    )
    assert shown_url("https://a.example/in?secret") == f"https://a.example/in?{MASK}"


def test_each_attempt_of_a_page_has_its_request_and_none_that_had_none(
    console: RunningConsole, client: httpx.Client, browser: Browser
) -> None:
    to = Destination("orders", "billing", "https://billing.example/h?k=s3cret", fields=("/id",))
    change(console, to)
    console.events.found["orders", "e-1"] = found_event("e-1")
    page = client.get(PAGE).text
    # One attempt was refused and one was taken; the refused one's receipt has no further attempts.
    assert page.count("<summary>The request</summary>") == 2
    assert "Hifi does not store requests" in page
    assert "s3cret" not in page
    assert "hifi-attempt: 2" in page
    assert "only the members /id." in page
    with browser.page() as tab:
        tab.open(console.url + PAGE)
        tab.run("document.querySelector('details.request > summary').focus()")
        tab.key("Enter", text="\r")
        tab.wait_for("document.querySelector('details.request').open", what="the request is open")
        assert f"POST https://billing.example/h?k={MASK}" in tab.text("details.request")
        assert tab.complaints() == []
    # The request to a removed destination cannot be shown.
    console.config.configuration = console.config.configuration.apply(to.config_key, None)
    assert "The request" not in client.get(PAGE).text


def test_a_page_of_many_attempts_with_many_headers_stays_small(
    console: RunningConsole, client: httpx.Client
) -> None:
    many = {f"x-{number}": "v" * 4_000 for number in range(32)}
    change(console, Destination("orders", "billing", "https://b.example/" + "p" * 2_000,
                                headers=many))  # fmt: skip
    found = found_event("e-1")
    taken = found.trail.receipts[1]
    console.events.found["orders", "e-1"] = replace(found, trail=Trail({}, [taken] * 500))
    page = client.get(PAGE).text
    assert page.count("<summary>The request</summary>") == _REQUESTS_MAX
    assert f"...: {32 - HEADERS_MAX} headers more from the settings" in page
    assert len(page) < 400_000


def test_a_tenant_sees_no_request_of_others() -> None:
    with running_console("keys") as running:
        theirs, text = make_key("studio", "read", tenant="studio")
        configure(running, theirs)
        running.events.found["orders", "e-1"] = found_event("e-1")
        with httpx.Client(base_url=running.url) as visitor:
            sign_in(visitor, text)
            assert "billing.example" not in visitor.get(PAGE).text
