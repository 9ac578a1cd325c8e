"""Streams and pipelines in the console: made, changed, rebuilt and removed by forms."""

import html
import json
from dataclasses import replace
from typing import Any

import httpx

from shared.config.configuration import Configuration, Replacement, Stream
from shared.config.model import ConfigObject
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState
from shared.proof.balance import Balance
from shared.proof.overview import RemovedView
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.component.console.pages.test_console_changes import fields_of, settings_of
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    overview,
    running_console,
)

DOCUMENT = """# What is worth a look.
name: large-orders
from: {stream: orders}
schema: "id STRING, total DOUBLE"
steps:
  - where: "total > 100"
  - select: {id: id}
to: [{stream: large}]
tests:
  - {given: [{id: a, total: 120}, {id: b, total: 5}], expect: [{id: a}]}
"""
WINDOWED = {
    "name": "sums",
    "from": {"stream": "orders"},
    "schema": "customer STRING, total DOUBLE",
    "steps": [
        {"window": {"every": "1 minute", "by": ["customer"], "compute": {"spent": "sum(total)"}}},
    ],
    "to": [{"stream": "large"}],
}


def known(console: RunningConsole) -> Configuration:
    return console.config.configuration


def put(console: RunningConsole, *objects: ConfigObject) -> None:
    for each in objects:
        console.config.configuration = known(console).apply(each.config_key, each.to_json())


def judge(
    console: RunningConsole,
    document: dict[str, Any],
    standing: Any,
    *,
    why: str = "",
    pointer: str = "",
) -> None:
    """Store a state for the document's pipeline, as the pipelines service would."""
    pipeline = Pipeline.of({"tenant": "default", **document})
    console.store.states[pipeline.title] = PipelineState(
        pipeline.fingerprint, standing, why, pointer
    )


def document() -> dict[str, Any]:
    """Return the parsed form of `DOCUMENT`."""
    return {
        "name": "large-orders",
        "from": {"stream": "orders"},
        "schema": "id STRING, total DOUBLE",
        "steps": [{"where": "total > 100"}, {"select": {"id": "id"}}],
        "to": [{"stream": "large"}],
        "tests": [
            {"given": [{"id": "a", "total": 120}, {"id": "b", "total": 5}], "expect": [{"id": "a"}]}
        ],
    }


def test_a_stream_is_made_by_a_form_and_none_is_overwritten(
    console: RunningConsole, client: httpx.Client
) -> None:
    assert 'href="/streams:new"' in client.get("/streams").text
    asked = client.get("/streams:new").text
    assert "hifi streams put NAME" in asked
    fields = {"csrf": csrf_of(asked), "stream": "new", "settings": json.dumps(settings_of(asked))}
    for wrong, says, status in (
        ({"stream": ""}, "Enter a name.", 422),
        ({"stream": "Not a name"}, "name", 400),
        ({"settings": '{"key_pointer": "x"}'}, "key_pointer", 400),
        ({"settings": "{"}, "This is not valid JSON", 422),
        ({"stream": "orders"}, "A stream orders already exists.", 409),
        ({"stream": "players"}, "A stream players already exists.", 409),
    ):
        answer = client.post("/streams:new", data=fields | wrong)
        assert (answer.status_code, says in answer.text) == (status, True), wrong
    after = client.post("/streams:new", data=fields, follow_redirects=True)
    assert (after.url.path, after.status_code) == ("/streams/new", 200)
    # There are no counts for the new stream yet.
    assert "The first figures come within a second or two." in after.text
    assert known(console).streams["new"] == Stream("new")
    assert client.get("/streams/no-such").status_code == 404


def test_how_a_stream_is_set_is_changed_by_a_form_with_a_schema_as_long_as_may_be(
    console: RunningConsole, client: httpx.Client
) -> None:
    assert 'href="/streams:settings?stream=orders"' in client.get("/streams/orders").text
    asked = client.get("/streams:settings?stream=orders").text
    before = settings_of(asked)
    fields = fields_of(asked)
    schema = {"enum": [f"{{{number}}} and \\ more" for number in range(10_000)]}
    assert len(json.dumps(schema)) > 200_000
    wanted = {**fields, "settings": json.dumps(before | {"key_pointer": "/id", "schema": schema})}
    after = client.post("/streams:settings", data=wanted, follow_redirects=True)
    assert after.url.path == "/streams/orders"
    stored = known(console).streams["orders"]
    assert (stored.key_pointer, json.loads(stored.json_schema)) == ("/id", schema)
    assert client.post("/streams:settings", data=wanted).status_code == 412
    again = settings_of(client.get("/streams:settings?stream=orders").text)
    assert again == before | {"key_pointer": "/id", "schema": schema}
    fewer = fields_of(client.get("/streams:settings?stream=orders").text)
    fewer["settings"] = json.dumps(before | {"partition_count": 0})
    answer = client.post("/streams:settings", data=fewer)
    assert (answer.status_code, "partition_count" in answer.text) == (400, True)


def test_a_stream_is_removed_once_a_person_has_seen_what_would_be_lost(
    console: RunningConsole, client: httpx.Client
) -> None:
    used = client.get("/streams:remove?stream=orders").text
    assert 'href="/streams/orders/billing"' in used
    assert "Remove these first" in used
    assert "<button" not in used
    fields = {"csrf": csrf_of(client.get("/streams:new").text), "stream": "orders"}
    assert client.post("/streams:remove", data=fields).status_code == 409
    for each in list(known(console).destinations_of("orders")):
        console.config.configuration = known(console).apply(each.config_key, None)
    gone = RemovedView("orders", "billing", 1, Balance(acked=19, queued=2, waiting=3, dead=1_400))
    console.show(replace(overview(), removed=(gone, replace(gone, stream="players"))))
    asked = client.get("/streams:remove?stream=orders").text
    assert "2 queued events will not be sent, 3 that wait for a retry become" in asked
    assert "there are already 1,400 dead letters" in asked
    assert "10,004 events acknowledged in it so far" in asked
    assert "hifi streams delete orders" in asked
    after = client.post("/streams:remove", data=fields_of(asked), follow_redirects=True)
    assert after.url.path == "/streams"
    assert "orders" not in known(console).streams
    assert "orders" in known(console).removed_streams
    assert client.get("/streams:remove?stream=orders").status_code == 404


def test_a_pipeline_is_put_as_it_was_pasted(console: RunningConsole, client: httpx.Client) -> None:
    put(console, Stream("large"))
    judge(console, document(), "running")
    assert 'href="/pipelines:new"' in client.get("/pipelines").text
    asked = client.get("/pipelines:new").text
    assert "hifi pipelines put FILE" in asked
    fields = {"csrf": csrf_of(asked), "document": DOCUMENT.replace("\n", "\r\n")}
    after = client.post("/pipelines:new", data=fields, follow_redirects=True)
    assert (after.url.path, after.status_code) == ("/pipelines/large-orders", 200)
    assert known(console).pipelines["large-orders"] == Pipeline.of(document())
    again = client.post("/pipelines:new", data=fields)
    assert (again.status_code, "A pipeline large-orders already" in again.text) == (409, True)
    # The shown document can be saved unchanged, and a changed one replaces it.
    asked = client.get("/pipelines:change?pipeline=large-orders").text
    shown = json.loads(
        html.unescape(asked.partition("<textarea")[2].partition(">")[2].partition("</")[0])
    )
    assert shown == document()
    changed = document() | {"steps": [{"where": "total > 99"}, {"select": {"id": "id"}}]}
    judge(console, changed, "running")
    fields = fields_of(asked) | {"document": json.dumps(changed)}
    after = client.post("/pipelines:change", data=fields, follow_redirects=True)
    assert after.url.path == "/pipelines/large-orders"
    assert known(console).pipelines["large-orders"] == Pipeline.of(changed)
    assert client.post("/pipelines:change", data=fields).status_code == 412


def test_what_is_wrong_with_a_document_is_said_with_its_line(
    console: RunningConsole, client: httpx.Client
) -> None:
    put(console, Stream("large"))
    csrf = csrf_of(client.get("/pipelines:new").text)
    for before, after, status, says, marked in (
        ("to: [", "to: {", 422, "document:8: this is neither YAML nor JSON", None),
        ("name: large-orders", "name: [1]", 422, "name: required.", None),
        ("stream: orders}", "stream: *x}", 422, "document:3: *x has no equivalent in JSON", None),
        ("stream: large}", "stream: no}", 404, "line 8: to.0.stream: There is no stream", 8),
        ("select: {id: id}", "chose: {id: id}", 422, "line 7: steps.1", 7),
        ("name: large", "name: Large", 422, "line 2: name", 2),
    ):
        wrong = DOCUMENT.replace(before, after)
        assert wrong != DOCUMENT
        answer = client.post("/pipelines:new", data={"csrf": csrf, "document": wrong})
        said = html.unescape(answer.text)
        assert (answer.status_code, says in said) == (status, True), said
        assert wrong in said
        if marked is not None:
            line = wrong.split("\n")[marked - 1]
            assert f"→{marked:5}  {line}" in said
    assert not known(console).pipelines


def test_what_spark_refuses_is_said_with_its_line_once_it_is_stored(
    console: RunningConsole, client: httpx.Client
) -> None:
    put(console, Stream("large"))
    why = "there is no <totla>"
    judge(console, document(), "refused", why=why, pointer="/steps/1/select/id")
    csrf = csrf_of(client.get("/pipelines:new").text)
    answer = client.post("/pipelines:new", data={"csrf": csrf, "document": DOCUMENT})
    said = html.unescape(answer.text)
    assert answer.status_code == 422
    assert f"It is stored but cannot run. line 7: steps.1.select.id: {why}" in said
    assert "→    7    - select: {id: id}" in said
    assert "<totla>" not in answer.text
    # The form now changes the existing pipeline.
    assert 'action="/pipelines:change"' in answer.text
    judge(console, document(), "running")
    fields = fields_of(answer.text) | {"document": DOCUMENT}
    after = client.post("/pipelines:change", data=fields, follow_redirects=True)
    assert after.url.path == "/pipelines/large-orders"


def test_a_pipeline_is_built_anew_given_up_and_removed(
    console: RunningConsole, client: httpx.Client
) -> None:
    windowed = Pipeline.of(WINDOWED)
    put(console, Stream("large"), windowed)
    asked = client.get("/pipelines:replace?pipeline=sums").text
    assert "hifi pipelines replace FILE --from 7d" in asked
    fields = fields_of(asked) | {"from": "12h", "document": json.dumps(WINDOWED)}
    for wrong, says, status in (
        ({"from": "soon"}, "must be like 90m, 12h, 7d or earliest", 400),
        ({"document": json.dumps(WINDOWED | {"steps": []})}, "without a window or dedupe", 422),
    ):
        answer = client.post("/pipelines:replace", data=fields | wrong)
        assert (answer.status_code, says in answer.text) == (status, True), answer.text
    client.post("/pipelines:replace", data=fields)
    built = known(console).replacements["sums"]
    assert isinstance(built, Replacement)
    assert built.generation == windowed.generation + 1
    asked = client.get("/pipelines:give-up?pipeline=sums").text
    assert "hifi pipelines give-up sums" in asked
    client.post("/pipelines:give-up", data=fields_of(asked))
    assert known(console).replacement_of("sums") is None
    asked = client.get("/pipelines:remove?pipeline=sums").text
    assert "Its state is lost." in asked
    assert "hifi pipelines delete sums" in asked
    after = client.post("/pipelines:remove", data=fields_of(asked), follow_redirects=True)
    assert after.url.path == "/pipelines"
    assert "sums" not in known(console).pipelines
    assert client.get("/pipelines:remove?pipeline=sums").status_code == 404


def test_who_may_only_read_changes_nothing_and_nobody_changes_what_is_of_others() -> None:
    with running_console("keys") as running:
        reader, reads = make_key("reader", "read")
        theirs, changes = make_key("studio", "admin", tenant="studio")
        configure(running, reader, theirs)
        put(running, Stream("large"), Pipeline.of(WINDOWED))
        running.show(overview())
        before = known(running)
        for text, status in ((reads, 403), (changes, 404)):
            with httpx.Client(base_url=running.url) as visitor:
                sign_in(visitor, text)
                assert ("/streams:new" in visitor.get("/streams").text) is (text == changes)
                fields = {
                    "csrf": csrf_of(visitor.get("/streams").text),
                    "settings": "{}", "document": json.dumps(WINDOWED), "from": "7d",
                }  # fmt: skip
                for path, name in (
                    ("/streams:settings", {"stream": "orders"}),
                    ("/streams:remove", {"stream": "orders"}),
                    ("/pipelines:change", {"pipeline": "sums"}),
                    ("/pipelines:replace", {"pipeline": "sums"}),
                    ("/pipelines:give-up", {"pipeline": "sums"}),
                    ("/pipelines:remove", {"pipeline": "sums"}),
                ):
                    assert visitor.get(path, params=name).status_code == status, path
                    answer = visitor.post(path, data=fields | name)
                    assert answer.status_code == status, path
                made = visitor.post("/streams:new", data=fields | {"stream": "orders"})
                assert made.status_code == (403 if text == reads else 409)
                made = visitor.post("/pipelines:new", data=fields)
                assert made.status_code == (403 if text == reads else 409)
                seen = visitor.get("/pipelines/sums").status_code
                assert seen == (200 if text == reads else 404)
        assert known(running) == before


def test_a_stream_is_made_by_keyboard_alone(console: RunningConsole, browser: Browser) -> None:
    with browser.page() as tab:
        tab.open(f"{console.url}/streams:new")
        tab.come_to("stream")
        tab.type("by-hand")
        tab.come_to("Create")
        tab.leave(lambda: tab.key("Enter", text="\r"))
        assert tab.text("h1") == "by-hand is created"
        assert tab.complaints() == []
    assert "by-hand" in known(console).streams
