"""Pages in a real Chromium send events to a gateway of another origin."""

from collections.abc import Iterator

import pytest

from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.console.browser import Browser, Tab
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

TEXT = new_text(kind="browser", key_id="web", entropy=b"a-page-of-the-shop--")
# Long enough on the busiest machine; tests wait this long only if something is wrong.
_PATIENCE_S = 60


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([stream_topic("orders")])


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    config = FixedConfig(Configuration(streams={"orders": Stream("orders")}))
    with running_gateway(publisher, config, Settings(auth="keys")) as running:
        web = ApiKey(
            "web",
            (secret_from(TEXT, signs=False),),
            kind="browser",
            origins=frozenset({page_of(running)}),
        )
        config.configuration = Configuration(
            streams=config.configuration.streams, keys={"web": web}
        )
        yield running


def page_of(gateway: RunningGateway) -> str:
    """Return another origin than the gateway's: the same server by its other name."""
    return f"http://localhost:{gateway.port}"


@pytest.fixture
def tab(browser: Browser, gateway: RunningGateway) -> Iterator[Tab]:
    with browser.page() as tab:
        tab.open(f"{page_of(gateway)}/openapi.json")
        yield tab


@pytest.mark.parametrize(
    "body",
    ['\'[{"id":"b"}]\'', "new Blob(['[{\"id\":\"b\"}]'], {type: 'application/json'})"],
)
def test_a_beacon_arrives(
    gateway: RunningGateway, publisher: FakePublisher, tab: Tab, body: str
) -> None:
    url = f"{gateway.url}/v1/streams/orders/beacon?key={TEXT}"
    assert tab.run(f"navigator.sendBeacon('{url}', {body})") is True
    # JSON needs a preflight: Chromium sends one, for a request with credentials.
    assert publisher.published.wait(_PATIENCE_S)
    # The gateway handles one request after the other: once it answers this, the beacon is stored.
    assert gateway.client.get("/openapi.json").status_code == 200
    assert [event.id for event in publisher.stored(stream_topic("orders"))] == ["b"]


def test_a_page_sends_events_without_credentials_only(
    gateway: RunningGateway, publisher: FakePublisher, tab: Tab
) -> None:
    """Visitors' cookies and certificates must not replace the page's key."""
    url = f"{gateway.url}/v1/streams/orders/events"
    headers = f"{{'authorization': 'Bearer {TEXT}', 'content-type': 'application/json'}}"
    fetch = (
        f"fetch('{url}', {{method: 'POST', body: '[{{}}]', headers: {headers}, credentials: '%s'}})"
    )
    outcome = f"{fetch}.then(answer => answer.status, error => error.name)"
    assert tab.run(outcome % "omit") == 200
    assert tab.run(outcome % "include") == "TypeError"
    assert len(publisher.stored(stream_topic("orders"))) == 1
