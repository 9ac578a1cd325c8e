"""Tables in the console: a list, and a page for each with its rows from the gateway."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.config.access import ApiKey, secret_from
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.config.table import Table
from shared.proof.balance import Balance
from shared.proof.overview import PipelineView
from tests.component.console.access.test_console_access import sign_in
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    destination_view,
    overview,
    running_console,
)
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.table_fixtures import (
    KEYS,
    OneProcess,
    table_config,
    table_gateway,
    written_copies,
)

HOSTILE = "<b>\u202e\"'&?/%00 x"


def a_pipeline(name: str, **fields: Any) -> Pipeline:
    return Pipeline.of({"name": name, "from": {"stream": "orders"}, **fields})


COUNTS = a_pipeline(
    "counts", schema="n INT", steps=[{"select": {"n": "n"}}, {"key": "'k'"}], to=[{"table": "sums"}]
)
JOINED = a_pipeline(
    "joined",
    schema="c STRING",
    steps=[{"enrich": {"table": "customers", "key": "c", "as": "r", "schema": "n STRING"}}],
    to=[{"stream": "orders-out"}],
)


def with_pipelines(configuration: Configuration) -> Configuration:
    for each in (COUNTS, JOINED):
        configuration = configuration.apply(each.config_key, each.to_json())
    return configuration


def links_of(page: str) -> set[str]:
    return set(map(html.unescape, re.findall(r'href="([^"]+)"', page)))


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[OneProcess]:
    with written_copies(tmp_path) as found:
        yield found


@pytest.fixture
def behind_keys(copies: OneProcess) -> Iterator[RunningConsole]:
    """Start a console that requires keys, and its gateway, which has these copies."""
    config = table_config()
    # The fixture's key may only write; viewers need one that reads.
    text = KEYS["some"]
    secrets = (secret_from(text, signs=False),)
    some = ApiKey("some", secrets, scopes=frozenset({"read"}), streams=frozenset({"orders"}))
    config.configuration = config.configuration.apply(some.config_key, some.to_json())
    with (
        table_gateway(FakePublisher([]), config, copies) as gateway,
        running_console("keys", gateway=gateway.url) as running,
    ):
        configure(running)
        shown = running.config.configuration
        running.config.configuration = with_pipelines(
            replace(shown, tables=config.configuration.tables, keys=config.configuration.keys)
        )
        running.show(overview())
        yield running


@pytest.fixture
def visitor(behind_keys: RunningConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=behind_keys.url, follow_redirects=True) as client:
        sign_in(client, KEYS["reads"])
        yield client


def test_a_key_is_looked_up_and_rows_are_listed_page_by_page(
    visitor: httpx.Client, copies: OneProcess
) -> None:
    eu = [(f"eu-{nth:03}", f'{{"n": {nth}.0}}') for nth in range(120)]
    copies.write("customers", *eu, (HOSTILE, '{"says": "<i>x</i>"}'), ("..", '{"dots": 2}'))
    seen: list[str] = []
    path = "/tables/customers?prefix=eu-"
    while path:
        page = visitor.get(path)
        assert page.status_code == 200
        assert "As of offset 122, " in page.text
        seen += re.findall(r"<code>(eu-\d+)</code>", page.text)
        further = re.search(r'href="([^"]+)">Next page', page.text)
        path = html.unescape(further[1]) if further else ""
        # Every page but the first links back to the first.
        assert ("First page" in page.text) == (len(seen) > 50)
    assert seen == [key for key, _ in eu]
    # The page lists the first rows by key; each key links to its row, whatever characters it has.
    listed = visitor.get("/tables/customers").text
    assert "<i>" not in listed
    for key, row in (("eu-007", '{"n": 7.0}'), ("..", '{"dots": 2}')):
        found = visitor.get("/tables/customers", params={"key": key}).text
        assert f"{html.escape(row)}</pre>" in found
    paths = {path for path in links_of(listed) if path.startswith("/tables/customers?key=")}
    odd = next(path for path in paths if "%3Cb%3E" in path)
    assert "{&quot;says&quot;: &quot;&lt;i&gt;x&lt;/i&gt;&quot;}</pre>" in visitor.get(odd).text
    assert "No row has this key." in visitor.get("/tables/customers?key=eu-").text
    assert "No rows." in visitor.get("/tables/customers?prefix=us-").text


def test_a_table_says_who_writes_and_who_reads_it(visitor: httpx.Client) -> None:
    listed = visitor.get("/tables").text
    rows = re.findall(r'<tr><th scope="row">.*?</tr>', listed)
    assert [re.findall(r'href="(/tables/[a-z]+)"', row) for row in rows] == [
        ["/tables/bare"],
        ["/tables/customers"],
        ["/tables/short"],
        ["/tables/sums"],
    ]
    rows = rows[1:]
    assert "/pipelines/joined" in links_of(rows[0])
    assert ">HTTP<" in rows[0]
    assert "1 min after they were written" in rows[1]
    assert "/pipelines/counts" in links_of(rows[2])
    assert "/tables" in links_of(visitor.get("/").text)
    assert "1 table with this in the name." in visitor.get("/tables?q=cust").text
    page = visitor.get("/tables/customers").text
    assert "hifi.table.customers" in page
    assert "/pipelines/joined" in links_of(page)


def test_a_copy_that_is_not_there_yet_is_said_on_the_page(visitor: httpx.Client) -> None:
    page = visitor.get("/tables/sums")
    assert page.status_code == 200
    assert "This machine has no copy of the table yet" in page.text
    assert "Look up" in page.text


def test_nobody_sees_the_tables_of_others_and_who_has_some_streams_sees_none(
    behind_keys: RunningConsole, visitor: httpx.Client
) -> None:
    assert "theirs" not in visitor.get("/tables").text
    assert visitor.get("/tables/theirs").status_code == 404
    assert visitor.get("/tables/nobodys").status_code == 404
    with httpx.Client(base_url=behind_keys.url, follow_redirects=True) as client:
        sign_in(client, KEYS["some"])
        assert "customers" not in client.get("/tables").text
        assert client.get("/tables/customers?key=eu-1").status_code == 404


def test_the_page_of_a_pipeline_leads_to_its_tables(
    console: RunningConsole, client: httpx.Client
) -> None:
    tables = {name: Table(name) for name in ("customers", "sums")}
    console.config.configuration = with_pipelines(
        replace(console.config.configuration, tables=tables)
    )
    lanes = {
        each.name: destination_view("orders", each.lane_id.split("/")[1], at_ms=overview().at_ms)
        for each in (COUNTS, JOINED)
    }
    views = [PipelineView("orders", name, Balance(), lanes[name]) for name in lanes]
    console.show(replace(overview(), pipelines=tuple(views)))
    assert "/tables/sums" in links_of(client.get("/pipelines/counts").text)
    page = client.get("/pipelines/joined").text
    assert "Looks up in the table" in page
    assert "/tables/customers" in links_of(page)


def test_many_tables_are_pages(console: RunningConsole, client: httpx.Client) -> None:
    names = [f"t-{nth:03}" for nth in range(230)]
    console.config.configuration = replace(
        console.config.configuration, tables={name: Table(name) for name in names}
    )
    seen: list[str] = []
    path = "/tables?q=t-"
    while path:
        text = client.get(path).text
        seen += re.findall(r'href="/tables/(t-\d+)"', text)
        further = re.search(r'href="([^"]+)">Next page', text)
        path = html.unescape(further[1]) if further else ""
    assert seen == names
    assert "No table yet." not in text


@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_their_window_are_labelled_and_work_by_keyboard(
    behind_keys: RunningConsole, copies: OneProcess, browser: Browser, width: int
) -> None:
    copies.write("customers", ("a" * 400, '{"long": "' + "x" * 500 + '"}'), ("b", '{"n": 1}'))
    contrast = (Path(__file__).parents[3] / "support" / "console" / "contrast.js").read_text()
    with browser.page(width=width, height=800, is_phone=width < 500) as tab:
        tab.open(f"{behind_keys.url}/tables")
        tab.type(KEYS["reads"])
        tab.leave(lambda: tab.key("Enter", text="\r"))
        for path in ("/tables", "/tables/customers", "/tables/customers?key=b", "/tables/sums"):
            tab.open(behind_keys.url + path)
            assert tab.run("document.querySelectorAll('h1').length") == 1, path
            assert tab.run("document.documentElement.scrollWidth") <= width, path
            assert tab.run(contrast) == [], path
            inputs = "[...document.querySelectorAll('main input')]"
            assert tab.run(f"{inputs}.filter(it => !it.labels.length).length") == 0, path
        tab.open(f"{behind_keys.url}/tables/customers")
        tab.run("document.querySelector('input[name=key]').focus()")
        tab.type("b")
        tab.leave(lambda: tab.key("Enter", text="\r"))
        assert tab.text("pre") == '{"n": 1}'
        assert tab.complaints() == []
