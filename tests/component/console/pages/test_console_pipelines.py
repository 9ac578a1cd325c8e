"""Pipelines in the console: a list, a page with a drawing for each, and who sees which."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.page_context import PageContext
from console.pages.pipeline_pages import pipeline_page, pipelines_page
from shared.config.configuration import Configuration, Stream
from shared.config.pipeline import Pipeline
from shared.proof.balance import Balance
from shared.proof.overview import BuiltAnew, Overview, PipelineView, StreamVerdict
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    destination_view,
    overview,
    running_console,
)

PAGES = ("/pipelines", "/pipelines/eu-sales", "/pipelines/broken", "/streams/orders", "/")
HOSTILE = "<script>alert(1)</script> \u202e"


def a_pipeline(name: str, **fields: Any) -> Pipeline:
    return Pipeline.of(
        {"name": name, "from": {"stream": "orders"}, "to": [{"stream": "eu"}], **fields}
    )


EU_SALES = a_pipeline(
    "eu-sales",
    schema="country STRING, items ARRAY<STRUCT<sku: STRING>>, text STRING",
    steps=[
        {"where": f"country IN ('DE', 'FR') AND text <> '{HOSTILE}'"},
        {"explode": {"item": "items"}},
        {"select": {"sku": "item.sku", "a_long_one": "concat(" + "country, " * 30 + "'')"}},
        {"key": "sku"},
    ],
    to=[
        {"dead": True, "when": "sku IS NULL"},
        {"stream": "eu", "when": "sku > 'a'"},
        {"stream": "rest"},
    ],
    match="first",
)
BROKEN = a_pipeline("broken", schema="n BIGINT", steps=[{"where": "no_such_column > 1"}])


def a_view(pipeline: Pipeline, **fields: Any) -> PipelineView:
    lane_name = pipeline.lane_id.split("/")[1]
    lane = destination_view("orders", lane_name, at_ms=overview().at_ms)
    balance = Balance(acked=1_000, delivered=990, dead=7, queued=3)
    lane = replace(lane, balance=balance, verdict=fields.pop("verdict", StreamVerdict.OK))
    return PipelineView("orders", pipeline.name, balance, lane, **{"standing": "running", **fields})


def set_up(running: RunningConsole) -> None:
    """Show two pipelines, one of them refused."""
    configuration = running.config.configuration
    objects = (Stream("eu"), Stream("rest"), EU_SALES, BROKEN)
    for each in objects:
        configuration = configuration.apply(each.config_key, each.to_json())
    running.config.configuration = configuration
    running.show(shown())


def shown() -> Overview:
    rates = {"passed": 12.5, "filtered": 3.0, "late": 0.5, "dead": 0.1}
    refused = a_view(
        BROKEN,
        standing="refused",
        why=f"there is no no_such_column {HOSTILE}",
        pointer="/steps/0/where",
        verdict=StreamVerdict.DISABLED,
    )
    return replace(
        overview(),
        pipelines=(
            a_view(
                EU_SALES,
                rates=rates,
                kept=1_234,
                kept_bytes=5_600_000,
                built=BuiltAnew(3, "replacing", behind=1_204_113),
                executors_ended=3,
                executor_ended_at_ms=1_790_000_000_000,
                why="the process that works on its events has ended",
            ),
            refused,
        ),
    )


def test_the_list_has_the_worst_first_and_a_page_says_all_there_is(
    console: RunningConsole, client: httpx.Client
) -> None:
    set_up(console)
    listed = client.get("/pipelines").text
    assert listed.index("broken") < listed.index("eu-sales")
    assert "In trouble: broken." in listed
    page = client.get("/pipelines/eu-sales").text
    assert "16.1 in: 12.5 passed, 3.0 filtered, 0.5 late, 0.1 dead" in page
    assert "1,234 known keys, 5.6 MB of memory" in page
    assert "Being rebuilt: generation 3</dt><dd>1,204,113 events to go" in page
    said = "3 times, last at 2026-09-21 14:13:20.000Z"
    assert f'Has ended its executor</dt><dd><span class="warn">{said}' in page
    assert 'running. <span class="warn">The process that works on its events has ended' in page
    assert '<span class="warn">running, has ended its executor 3 times' in listed
    assert 'href="/streams/orders"' in page
    assert 'href="/dead?stream=orders&amp;destination=pipeline:eu-sales"' in page
    # The whole expression is in the drawing's titles and in the document.
    assert page.count("country, country, country") >= 3
    refused = client.get("/pipelines/broken").text
    assert "refused: there is no no_such_column" in refused
    assert "<code>/steps/0/where</code>" in refused
    for text in (listed, page, refused):
        assert "<script>alert" not in text
        assert "\u202e" not in text
    assert client.get("/pipelines/nobody").status_code == 404
    assert "/pipelines/eu-sales" in client.get("/streams/orders").text
    assert "/pipelines/eu-sales" in client.get("/").text


def test_nobody_sees_a_pipeline_of_streams_that_are_not_his() -> None:
    with running_console("keys") as running:
        ours, our_text = make_key("ops", "read")
        some, some_text = make_key("some", "read", streams=("orders",))
        theirs, their_text = make_key("studio", "read", tenant="studio")
        configure(running, ours, some, theirs)
        set_up(running)
        for text, sees in ((our_text, True), (some_text, False), (their_text, False)):
            with httpx.Client(base_url=running.url, verify=False) as client:
                sign_in(client, text)
                assert ("eu-sales" in client.get("/pipelines").text) is sees
                assert client.get("/pipelines/eu-sales").status_code == (200 if sees else 404)
                headers = {"authorization": f"Bearer {text}"}
                told = httpx.get(f"{running.url}/api/overview", headers=headers).json()
                assert len(told["pipelines"]) == (2 if sees else 0)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_window_and_texts_stand_out(
    console: RunningConsole, browser: Browser, width: int, scheme: Any
) -> None:
    set_up(console)
    script = (Path(__file__).parents[3] / "support" / "console" / "contrast.js").read_text()
    with browser.page(width=width, height=800, is_phone=width < 500, scheme=scheme) as tab:
        for path in PAGES:
            tab.open(console.url + path)
            assert tab.run("document.querySelectorAll('h1').length") == 1, path
            assert tab.run("document.documentElement.scrollWidth") <= width, path
            assert tab.run(script) == [], path
        assert tab.complaints() == []


def test_two_hundred_pipelines_are_a_page_that_is_made_at_once() -> None:
    pipelines = [a_pipeline(f"p{nth}") for nth in range(200)]
    streams = {name: Stream(name) for name in ("orders", "eu")}
    configuration = Configuration(streams=streams, pipelines={it.name: it for it in pipelines})
    context = PageContext(
        replace(overview(), pipelines=tuple(map(a_view, pipelines))), configuration
    )
    began_s = time.thread_time()
    page = pipelines_page(context, may_change=True)
    assert time.thread_time() - began_s < 2.0
    assert page.regions[0].content.count("<tr>") == 201
    one = pipeline_page("p7", context, {}, may_change=True)
    assert one is not None
    assert [region.id for region in one.regions if region.content] == [
        "top", "graph", "now", "pictures", "lag", "loss", "minutes", "document",
    ]  # fmt: skip
