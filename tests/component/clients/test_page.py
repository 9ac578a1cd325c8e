"""A page in a real Chromium sends with the client; its last events are sent when it closes."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from tests.support.console.browser import Browser
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.client_gateways import STREAM, stored
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.tidy import sources

KEY = new_text(kind="browser", key_id="web", entropy=b"a-page-of-the-shop--")


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shop() -> Iterator[str]:
    """Serve a page and the client beside it, and return their origin."""
    folder = str(sources.ROOT / "clients" / "javascript" / "src")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://localhost:{server.server_address[1]}"
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture
def open_to_shop(shop: str, publisher: FakePublisher) -> Iterator[RunningGateway]:
    web = ApiKey("web", (secret_from(KEY, signs=False),), kind="browser", origins=frozenset({shop}))
    config = FixedConfig(Configuration(streams={STREAM: Stream(STREAM)}, keys={"web": web}))
    with running_gateway(publisher, config, Settings(auth="keys")) as running:
        yield running


def test_a_page_sends_and_what_waits_when_it_goes_leaves_as_a_beacon(
    browser: Browser, shop: str, open_to_shop: RunningGateway, publisher: FakePublisher
) -> None:
    sender = f"new Sender('{open_to_shop.url}', '{STREAM}', {{key: '{KEY}', lingerMs: %d}})"
    with browser.page() as tab:
        tab.open(f"{shop}/browser.js")
        fate = tab.run(
            "import('/browser.js').then(({Sender}) => {"
            f" const hifi = {sender % 10};"
            " return hifi.send({id: 'a'}).outcome().then(({fate, reason}) => fate + reason);})"
        )
        assert fate == "accepted"
        tab.run(
            "import('/browser.js').then(({Sender}) => {"
            f" const hifi = {sender % 600_000};"
            " for (const id of ['b', 'c']) hifi.send({id, text: 'x'.repeat(20_000)});})"
        )
        assert stored(publisher) == ["a"]
        tab.open("about:blank")
        wait_until(
            lambda: set(stored(publisher)) == {"a", "b", "c"}, what="the beacons have arrived"
        )
