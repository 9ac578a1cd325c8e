"""A pipeline is tried from the console: as it is, while it is changed, and before it is made."""

import html
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from gateway.intake.events import Event
from shared.config.configuration import Stream
from shared.config.pipeline import Pipeline
from shared.event.topics import TRIALS
from shared.event.trial import TrialAnswer, TrialRow
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.component.console.pages.test_console_browser import AXE_FINDS, axe
from tests.component.console.pages.test_console_changes import fields_of
from tests.component.console.pages.test_console_made import DOCUMENT, put
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import RunningConsole, configure, csrf_of
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.trial_answers import Trier, trier

HOSTILE = "<script>alert(1)</script>"
ANSWER = TrialAnswer(
    given=('{"id":"a","total":120}', '{"id":"b","total":5}', '{"id":"c"}', '{"id":"d"}'),
    rows=(
        TrialRow(1, "passed", "", "large", "a", '{"id":"a"}'),
        TrialRow(2, "filtered", "by step 1, where: total > 100", "", None, '{"id":"b","total":5}'),
        TrialRow(3, "dead", f"unreadable {HOSTILE}", "", None, '{"id":"c"}'),
        TrialRow(None, "passed", "", "large", None, '{"sum":1}'),
    ),
    left_out=7,
)


@pytest.fixture
def trying(console: RunningConsole) -> Iterator[Trier]:
    put(console, Stream("large"))
    with trier(console.store.publisher, ANSWER) as found:
        yield found


def a_pipeline() -> Pipeline:
    return Pipeline.of({"name": "there", "from": {"stream": "orders"}, "to": [{"stream": "large"}]})


def cells(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", page)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_what_is_typed_is_tried_before_it_is_made(client: httpx.Client, trying: Trier) -> None:
    new = client.get("/pipelines:new").text
    assert '<button type="submit" formaction="/pipelines:try">Try it</button>' in new
    fields = {"csrf": csrf_of(new), "document": DOCUMENT}
    answer = client.post("/pipelines:try", data=fields)
    assert answer.status_code == 200
    (asked,) = trying.asked
    assert (asked.newest, asked.events) == (10, ())
    assert json.loads(bytes(asked.document))["name"] == "large-orders"
    assert "4 events made 4 rows" in answer.text
    assert "7 more rows are not shown" in answer.text
    assert HOSTILE not in answer.text
    table = cells(answer.text)
    assert [row[2].split(":")[0] for row in table] == [
        "passed on",
        "dropped",
        "dead letter",
        "counted in its window",
        "passed on",
    ]
    assert table[0][3] == "large"
    assert table[1][2] == "dropped: by step 1, where: total &gt; 100"
    assert "unreadable &lt;script&gt;" in table[2][2]
    assert table[4][0] == "window"
    # The page offers to create the pipeline as it was tried.
    assert html.escape(DOCUMENT) in answer.text
    assert 'formaction="/pipelines:new">Create</button>' in answer.text


def test_events_are_pasted_in_any_of_three_ways(client: httpx.Client, trying: Trier) -> None:
    csrf = csrf_of(client.get("/pipelines:new").text)
    for text, events in (
        ('{"id":\n "a"}', [{"id": "a"}]),
        ('[{"id": "a"}, 2]', [{"id": "a"}, 2]),
        ('{"id": "a"}\r\n\r\n{"id": "b"}\r\n', [{"id": "a"}, {"id": "b"}]),
    ):
        fields = {"csrf": csrf, "document": DOCUMENT, "events": text}
        assert client.post("/pipelines:try", data=fields).status_code == 200
        assert [json.loads(bytes(each)) for each in trying.asked[-1].events] == events
    for more, says in (
        ({"events": '{"id": 1}\nnonsense'}, "Events, line 2: not valid JSON"),
        ({"newest": "many"}, "Newest events: enter a number, 1 to 100."),
        ({"newest": "101"}, "newest"),
        ({"document": "from: {stream: orders}"}, "name: required."),
        ({"document": "name: [\n"}, "line"),
        ({"document": "name: p\nfrom: {stream: nowhere}\nto: [{stream: large}]"}, "nowhere"),
    ):
        answer = client.post(
            "/pipelines:try", data={"csrf": csrf, "document": DOCUMENT, "events": "", **more}
        )
        assert 400 <= answer.status_code < 500, more
        assert says in answer.text, more
        assert 'role="alert"' in answer.text
    assert len(trying.asked) == 3


def test_what_is_there_is_tried_from_its_page_and_changed_from_there(
    console: RunningConsole, client: httpx.Client, trying: Trier
) -> None:
    put(console, a_pipeline())
    asked = client.get("/pipelines:try?pipeline=there").text
    assert "hifi pipelines try FILE" in asked
    assert 'formaction="/pipelines:try"' in client.get("/pipelines:change?pipeline=there").text
    fields = fields_of(asked) | {"document": json.dumps({"name": "there",
        "from": {"stream": "orders"}, "to": [{"stream": "large"}, {"dead": True}]})}  # fmt: skip
    answer = client.post("/pipelines:try", data=fields)
    assert 'formaction="/pipelines:change">Save</button>' in answer.text
    assert len(trying.asked) == 1
    assert client.get("/pipelines:try?pipeline=nothing").status_code == 404


def test_nobody_tries_without_admin_or_what_is_not_theirs(locked_console: RunningConsole) -> None:
    reader, text = make_key("reader", "read")
    studio, theirs = make_key("studio-root", "admin", tenant="studio")
    configure(locked_console, reader, studio)
    put(locked_console, Stream("large"), a_pipeline())
    with httpx.Client(base_url=locked_console.url) as client:
        sign_in(client, text)
        assert client.get("/pipelines:try?pipeline=there").status_code == 403
    with httpx.Client(base_url=locked_console.url) as client:
        sign_in(client, theirs)
        assert client.get("/pipelines:try?pipeline=there").status_code == 404
        csrf = csrf_of(client.get("/pipelines:new").text)
        fields = {"csrf": csrf, "document": DOCUMENT}
        answer = client.post("/pipelines:try", data=fields)
        assert (answer.status_code, "orders" in answer.text) == (404, True)


def test_by_keyboard_on_a_phone_in_the_dark(
    console: RunningConsole, browser: Browser, trying: Trier
) -> None:
    put(console, a_pipeline())
    with browser.page(width=390, height=800, is_phone=True, scheme="dark") as tab:
        tab.open(f"{console.url}/pipelines:try?pipeline=there")
        tab.come_to("Try it")
        tab.leave(lambda: tab.key("Enter", text="\r"))
        assert "4 events made 4 rows" in tab.text("main")
        assert tab.run("document.documentElement.scrollWidth") <= 390
        assert tab.complaints() == []
        tab.run(f"{axe()}; 0")
        assert tab.run(AXE_FINDS) == []
    assert len(trying.asked) == 1


def test_while_others_try_the_form_comes_back_with_what_was_typed(
    console: RunningConsole, client: httpx.Client
) -> None:
    put(console, Stream("large"))
    publisher = console.store.publisher
    assert isinstance(publisher, FakePublisher)
    # Forget earlier questions.
    publisher.told.logs[TRIALS].clear()
    fields = {"csrf": csrf_of(client.get("/pipelines:new").text), "document": DOCUMENT}
    with ThreadPoolExecutor() as threads:
        # The first trial gets no answer until the second has been refused.
        waiting = threads.submit(client.post, "/pipelines:try", data=fields, timeout=40)
        wait_until(lambda: bool(publisher.told.logs[TRIALS]), what="the first question is asked")
        second = client.post("/pipelines:try", data=fields)
        assert second.status_code == 503
        assert "Other pipelines are being tried" in second.text
        assert html.escape(DOCUMENT) in second.text
        (asked,) = publisher.told.logs[TRIALS]
        event = Event.of(id="", key=asked.key, value=ANSWER.to_bytes(), headers=())
        publisher.told.publish(TRIALS, [event])
        assert waiting.result().status_code == 200
