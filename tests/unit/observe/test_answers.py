"""A destination's recent answers are counted per request, bounded, and shown as text."""

import html
import json
from dataclasses import replace

from msgspec import structs

from console.pages.destinations.destination_parts import answers_section, settings_section
from observe.lag.answers import RecentAnswers
from observe.lag.progress import WINDOW_MS, Progress
from shared.config.credentials import Bearer, Proxy
from shared.config.destination import Destination
from shared.proof.last_answer import FailedTry
from shared.proof.overview import Answers, RefusedRequest
from shared.proof.receipt import Receipt, ReceiptOutcome
from tests.support.console.console_fixtures import destination_view
from tests.support.suite import samples

NOW_MS = 1_790_000_000_000


def a_receipt(
    batch: int, *tries: FailedTry, reason: str = "status_200", at_ms: int = NOW_MS
) -> Receipt:
    outcome = ReceiptOutcome.DELIVERED if reason == "status_200" else ReceiptOutcome.WAITING
    made = samples.a_receipt(outcome, (0, 30), reason=reason, ended_at_ms=at_ms)
    return structs.replace(made, batch_id=f"msg_{batch}" if batch else "", failed_tries=tries)


def failed(number: int, text: str = "busy") -> FailedTry:
    return FailedTry(NOW_MS + number, "status_503", 12, 503, text, {"server": "edge"})


def read(answers: RecentAnswers, *, now_ms: int = NOW_MS) -> Answers:
    return answers.read(now_ms=now_ms, span_ms=WINDOW_MS)


def test_each_request_is_counted_by_what_came_of_it() -> None:
    answers = RecentAnswers()
    for receipt in (
        a_receipt(1),
        a_receipt(2, failed(1), failed(2)),
        # Accepted in part: two receipts of one batch.
        a_receipt(3, failed(3), reason="status_503"),
        a_receipt(3, failed(3), reason="status_400"),
        # An unsent event has no batch.
        a_receipt(0, reason="paused"),
    ):
        answers.add(receipt)
    told = read(answers)
    assert told.counts == {"status_503": 3, "status_200": 2}
    assert [each.failed.at_ms - NOW_MS for each in told.refused] == [3, 2, 1]
    assert [each.batch_id for each in told.refused] == ["msg_3", "msg_2", "msg_2"]
    assert (told.refused[0].event_count, told.refused[0].failed.headers) == (30, {})


def test_what_a_destination_says_takes_little_and_is_forgotten() -> None:
    answers = RecentAnswers()
    for status in range(600):
        said = FailedTry(NOW_MS, f"status_{status}", 1, status, "x" * 1_000)
        answers.add(a_receipt(status + 1, said, reason="status_1"))
    told = read(answers)
    assert len(told.counts) == 20
    assert told.counts["other"] == 580
    assert next(iter(told.counts)) == "other"
    assert len(told.refused) == 5
    assert {len(each.failed.text) for each in told.refused} == {200}
    assert read(answers, now_ms=NOW_MS + WINDOW_MS + 20_000).counts == {}


def test_a_destination_has_its_answers_and_what_it_takes_in_a_second() -> None:
    progress = Progress("demo/sample")
    progress.take(
        structs.replace(a_receipt(1, failed(1)), destination_id="demo/sample"), now_ms=NOW_MS
    )
    assert progress.delivered_per_s(NOW_MS) == 0.5
    assert read(progress.answers).counts == {"status_503": 1, "status_200": 1}


def test_the_page_of_a_destination_shows_answers_as_text() -> None:
    view = destination_view("orders", "lake", at_ms=NOW_MS)
    refused = RefusedRequest("msg_1", 12, failed(1, "<b>no"))
    page = str(answers_section(replace(view, answers=Answers({"status_503": 1}, (refused,)))))
    assert "&lt;b&gt;no" in page
    assert "<h3>The newest requests that were not taken</h3>" in page
    assert "1 request<" in page
    assert "status" not in str(answers_section(replace(view, answers=Answers())))
    # A request that is older than the counts is shown without them.
    assert "msg_1" in str(answers_section(replace(view, answers=Answers({}, (refused,)))))


def test_settings_are_shown_and_secrets_are_not() -> None:
    sealed = "sealed:v1:abc"
    to = Destination(
        "orders", "lake", "https://lake.example/in", rate_per_s=7,
        auth=Bearer(sealed), headers={"x-team": "data"}, secret_headers={"x-key": sealed},
        proxy=Proxy("http://proxy.example:3128", "hifi", sealed),
    )  # fmt: skip
    page = html.unescape(str(settings_section(to)))
    assert "sealed" not in page
    assert page.count("set, but never shown") == 3
    proxy = {"url": "http://proxy.example:3128", "username": "hifi"}
    assert json.dumps(proxy | {"password": "set, but never shown"}) in page
    # Defaults within a setting are omitted.
    open_proxy = replace(to, proxy=Proxy("http://proxy.example:3128"))
    assert '{"url": "http://proxy.example:3128"}' in html.unescape(
        str(settings_section(open_proxy))
    )
    assert "x-team" in page
    assert "null" not in page
    assert "[]" not in page
    # Settings that somebody has changed come first.
    assert page.index("rate_per_s") < page.index("batch_count_max")
    assert "hifi destinations update orders lake" in page
    assert str(settings_section(None)) == ""
