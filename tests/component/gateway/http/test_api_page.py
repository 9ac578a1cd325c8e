"""The gateway's API page shows every path without scripts, and its policy lets none run."""

import re
from collections.abc import Iterator

import pytest

from gateway.app import described
from gateway.http.api_page import sections
from gateway.settings import Settings
from tests.support.console.browser import Browser
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    with running_gateway(FakePublisher([]), config_with(), Settings(auth="keys")) as running:
        yield running


def test_a_browser_shows_every_path_to_anybody(browser: Browser, gateway: RunningGateway) -> None:
    with browser.page() as tab:
        tab.open(f"{gateway.url}/docs")
        shown = tab.run("document.body.innerText")
        # The policy allows only our own style; with a wrong hash no style would apply.
        assert tab.run("getComputedStyle(document.querySelector('pre')).overflowX") == "auto"
        broken = "[...document.querySelectorAll('a[href^=\"#\"]')].filter("
        broken += "a => !document.getElementById(a.hash.slice(1))).map(a => a.hash)"
        assert tab.run(broken) == []
    document = described(Settings(auth="keys"))
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in shown


def test_nothing_runs_in_it(gateway: RunningGateway) -> None:
    answer = gateway.client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "script" not in re.sub(r"descri\w+", "", answer.text)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert len(answer.content) < 240_000


def test_what_stands_in_the_document_is_text() -> None:
    document = {
        "paths": {
            "/<b>": {
                "get": {
                    "operationId": "a",
                    "description": "<script>",
                    "responses": {"200": {"description": "<i>"}},
                }
            }
        },
        "components": {"schemas": {"It": {"properties": {"<u>": {"const": "<s>"}}}}},
    }
    markup = "".join(each.markup for each in sections(document))
    assert [each for each in ("<script>", "<i>", "<u>", "<s>") if each in markup] == []
