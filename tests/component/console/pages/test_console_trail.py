"""The page of changes, and the last change on the page of a stream or destination."""

import httpx
import pytest

from shared.config.destination import Destination
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.component.console.pages.test_console_changes import change, fields_of
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    overview,
    running_console,
)

PAUSE = "/destinations/pause?stream=orders&destination=lake"


@pytest.fixture
def paused(console: RunningConsole, client: httpx.Client) -> httpx.Client:
    """Return a client of a console in which somebody has paused a destination."""
    change(console, Destination("orders", "lake", "https://lake.example/s3cret"))
    client.post("/destinations/pause", data=fields_of(client.get(PAUSE).text))
    return client


def test_a_change_is_on_the_page_of_changes_and_on_that_of_its_object(
    paused: httpx.Client,
) -> None:
    page = paused.get("/changes").text
    assert "somebody without a key" in page
    assert "is_paused false → true" in page
    assert '<a href="/streams/orders/lake">orders/lake</a>' in page
    assert "s3cret" not in page
    its_own = paused.get("/streams/orders/lake").text
    assert "Paused by somebody without a key at " in its_own
    way = "/changes?kind=destination&amp;name=orders%2Flake"
    assert f'href="{way}"' in its_own
    found = paused.get(way.replace("&amp;", "&"))
    assert "is_paused false → true" in found.text
    assert "No change is on record." in paused.get("/streams/orders").text


def test_changes_are_searched_and_paged(console: RunningConsole, paused: httpx.Client) -> None:
    assert "orders/lake" in paused.get("/changes?did=paused&contains=lak").text
    assert "No change found." in paused.get("/changes?did=deleted").text
    assert "No change found." in paused.get("/changes?to=2026-01-01T00:00").text
    assert paused.get("/changes?kind=nothing").status_code == 400
    gateway = console.gateway.client
    for count in range(1, 103):
        body = {"events_per_s": count}
        gateway.put("/v1/tenants/acme", json=body).raise_for_status()
    first = paused.get("/changes").text
    assert ("events_per_s 101 → 102" in first, "is_paused" in first) == (True, False)
    (older,) = (part.split('"')[0] for part in first.split('href="')[1:] if ">Older<" in part[:80])
    second = paused.get(older.replace("&amp;", "&")).text
    assert ("is_paused false → true" in second, ">Older<" in second) == (True, False)
    assert 'href="/changes">Newest<' in second


def test_a_key_sees_the_changes_of_its_own_tenant_alone(locked_console: RunningConsole) -> None:
    keys = [
        make_key("ops", "read", "admin"),
        make_key("studio-ops", "read", "admin", tenant="studio"),
    ]
    configure(locked_console, *(each for each, _ in keys))
    for (_, text), stream in zip(keys, ("orders", "players"), strict=True):
        headers = {"authorization": f"Bearer {text}"}
        path, body = f"/v1/streams/{stream}", {"key_pointer": "/id"}
        locked_console.gateway.client.put(path, json=body, headers=headers).raise_for_status()
    seen = []
    for _, text in keys:
        with httpx.Client(base_url=locked_console.url) as client:
            sign_in(client, text)
            page = client.get("/changes").text
        seen.append({name for name in ("orders", "players") if f">{name}</a>" in page})
    # The operator sees all changes.
    assert seen == [{"orders", "players"}, {"players"}]


def test_a_page_is_shown_without_its_last_change_when_the_gateway_is_away() -> None:
    with running_console("off", gateway="http://127.0.0.1:1") as console:
        configure(console)
        console.show(overview())
        answer = httpx.get(f"{console.url}/streams/orders")
        assert (answer.status_code, "Last change" in answer.text) == (200, False)
        assert httpx.get(f"{console.url}/changes").status_code == 503
