"""`hifi send` against the gateway's real HTTP: its events, its output and its retries."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from deploy.cli.events.event_input import EventInput, read_lines, synthetic
from deploy.cli.events.posting import Poster
from deploy.cli.events.send import send
from gateway.publish.report import Fate
from shared.event.topics import stream_topic
from shared.runtime.http_client import HttpAnswer, HttpClient, NoHttpAnswerError
from shared.runtime.setup_error import NoAnswerError, UsageError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway

TOPIC = stream_topic("demo")
app = typer.Typer()
app.command()(send)


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config_with("demo")) as running:
        yield running


def invoke(gateway: RunningGateway, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    result = CliRunner().invoke(
        app, ["demo", *arguments], input=stdin, env={"HIFI_GATEWAY": gateway.url}
    )
    if isinstance(result.exception, UsageError):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_arguments_arrive_byte_by_byte(gateway: RunningGateway, publisher: FakePublisher) -> None:
    text = '{"id": "ü",  "n": 1.00}'
    code, out, err = invoke(gateway, text, '{"id":"2"}', "--key", "k")
    assert code == 0
    assert out.startswith("2 accepted, 0 rejected, 0 not known to be stored, in ")
    assert out.endswith(" events/s\n")
    (request_id,) = re.findall("^`hifi receipt (.*)` shows where they are.$", err, re.MULTILINE)
    assert request_id
    stored = {event.id: event for event in publisher.stored(TOPIC)}
    assert stored["ü"].value == text.encode()
    assert {event.key for event in stored.values()} == {b"k"}


def test_lines_of_a_file_go_in_batches(
    gateway: RunningGateway, publisher: FakePublisher, tmp_path: Path
) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text("".join(f'{{"id":"{number}"}}\r\n\n' for number in range(7)))
    code, _, err = invoke(gateway, "--file", str(path), "--batch", "3")
    assert code == 0
    assert re.fullmatch("They went in 3 requests, .* to .*: `hifi receipt ID` shows .*\n", err)
    assert {event.id for event in publisher.stored(TOPIC)} == {str(n) for n in range(7)}


def test_a_script_reads_what_became_of_them(gateway: RunningGateway) -> None:
    code, out, _ = invoke(gateway, '{"id":"1"}', '"no object"', '{"id":"2"}', "--json")
    said = json.loads(out)
    assert (code, said["accepted"], said["rejected"], said["unsure"]) == (5, 2, 1, 0)
    assert len(said["request_ids"]) == 1


def test_what_became_of_them_comes_in_each_form(gateway: RunningGateway) -> None:
    two = ["--count", "2", "--batch", "1"]
    code, out, err = invoke(gateway, *two, "-o", "name")
    assert (code, err) == (0, "")
    ids = out.split()
    assert len(ids) == 2
    assert yaml.safe_load(invoke(gateway, *two, "-o", "yaml")[1])["accepted"] == 2
    table = invoke(gateway, *two, "-o", "table")[1].splitlines()
    rows = dict(line.split(maxsplit=1) for line in table)
    assert (rows["setting"], rows["accepted"], rows["rejected"]) == ("value", "2", "0")
    # A script that reads ids gets none for rejected events.
    code, out, _ = invoke(gateway, '"no object"', "-o", "name")
    assert code == 1


def test_synthetic_events_have_ids_of_their_own(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    for _ in range(2):
        assert invoke(gateway, "--count", "250", "--rate", "100000")[0] == 0
    assert len({event.id for event in publisher.stored(TOPIC)}) == 500


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"id":', "Expecting value"),
        ("[NaN]", "NaN is not in the JSON standard"),
        ("[" * 100_000, "recursion"),
        ("\udcff", "utf-8"),
    ],
)
def test_bad_json_names_its_line_after_what_was_sent(
    line: str, why: str, gateway: RunningGateway, publisher: FakePublisher
) -> None:
    given = b'{"id":"1"}\n{"id":"2"}\n' + line.encode(errors="surrogateescape")
    with pytest.raises(UsageError, match=rf"line 3 of standard input is not JSON \(.*{why}"):
        invoke(gateway, "--file", "-", "--batch", "1", stdin=given)
    assert len(publisher.stored(TOPIC)) == 2


def test_a_rejected_event_is_named_by_its_place_and_not_sent_again(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    code, out, err = invoke(gateway, '{"id":"1"}', '"no object"')
    assert code == 5
    assert out.startswith("1 accepted, 1 rejected, 0 not known")
    assert "207: 1 accepted, 1 rejected (request " in err
    assert "argument 2: not_an_object: an event must be a JSON object" in err
    assert len(publisher.stored(TOPIC)) == 1


def test_markup_and_control_characters_stay_text(gateway: RunningGateway) -> None:
    code, _, err = invoke(gateway, '{"id":"[red]\\u001b[31m"}')
    assert code == 1
    assert "\x1b" not in err
    # No receipt is offered, as nothing was stored.
    assert "hifi receipt" not in err


def test_an_unknown_stream_is_said_in_the_gateways_words(gateway: RunningGateway) -> None:
    result = CliRunner().invoke(app, ["nobody", "{}", "--gateway", gateway.url])
    assert result.exit_code == 6
    assert (
        "404 There is no such stream: There is no stream 'nobody'; `hifi streams list`"
        in result.stderr
    )
    assert "0 accepted, 1 rejected, 0 not known" in result.stdout


def test_without_a_gateway_it_is_one_sentence() -> None:
    result = CliRunner().invoke(app, ["demo", "{}", "--gateway", "http://127.0.0.1:1"])
    assert isinstance(result.exception, NoAnswerError)
    assert result.exception.exit_code == 7
    assert "No gateway answers at http://127.0.0.1:1" in str(result.exception)


@pytest.mark.parametrize("arguments", [[], ["{}", "--count", "1"], ["--count", "1", "-f", "-"]])
def test_one_source_of_events_must_be_named(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code == 2
    assert "--file FILE" in result.stderr


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing cannot be read"):
        list(read_lines(tmp_path / "missing"))


class Answering(HttpClient):
    """A gateway whose answers a test sets."""

    def __init__(self, answer: Callable[[bytes], HttpAnswer]) -> None:
        super().__init__("http://gw/", timeout_s=1)
        self.answer = answer

    def ask(self, *_: object, body: bytes | None = None, **__: object) -> HttpAnswer:
        return self.answer(body or b"")


def poster(answer: Callable[[bytes], HttpAnswer], waited_s: list[float]) -> Poster:
    return Poster(Answering(answer), stream="demo", sleep=waited_s.append)


def said(status: int, body: Any = None, **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpAnswer(status, named, json.dumps(body).encode() if body else b"")


def given(count: int) -> list[EventInput]:
    return list(synthetic(count))


@pytest.mark.parametrize(("status", "asked"), [(503, "2"), (429, "7"), (504, "1")])
def test_later_means_once_more_after_the_wait_that_was_asked_for(status: int, asked: str) -> None:
    bodies: list[bytes] = []

    def answer(body: bytes) -> HttpAnswer:
        bodies.append(body)
        if len(bodies) < 3:
            return said(status, retry_after=asked)
        return said(200, {"accepted": 4, "rejected": 0})

    waited_s: list[float] = []
    outcome = poster(answer, waited_s).post(given(4))
    assert (outcome.accepted, outcome.unsure, outcome.tries) == (4, 0, 3)
    assert waited_s == [float(asked)] * 2
    assert bodies[0] == bodies[1] == bodies[2]


def test_only_what_is_retryable_is_sent_again() -> None:
    sent: list[int] = []

    def answer(body: bytes) -> HttpAnswer:
        sent.append(body.count(b'"id"'))
        if len(sent) > 1:
            return said(200, {"accepted": 1, "rejected": 0})
        results = [
            {"index": 1, "status": "unknown", "code": "u", "detail": "d", "retryable": True},
            {"index": 2, "status": "rejected", "code": "bad_id", "detail": "d", "retryable": False},
        ]
        return said(504, {"accepted": 2, "rejected": 1, "results": results})

    outcome = poster(answer, []).post(given(4))
    assert sent == [4, 1]
    assert (outcome.accepted, outcome.rejected, outcome.unsure) == (3, 1, 0)
    assert outcome.complaints == ("event 3: bad_id: d",)


def test_it_gives_up_after_five_tries_and_stops() -> None:
    waited_s: list[float] = []
    outcome = poster(lambda _: said(503), waited_s).post(given(3))
    assert (outcome.accepted, outcome.unsure, outcome.tries, outcome.stops) == (0, 3, 5, True)
    assert waited_s == [1.0] * 4


@pytest.mark.parametrize("asked", ["-5", "soon", "100000"])
def test_a_strange_retry_after_is_kept_within_bounds(asked: str) -> None:
    waited_s: list[float] = []
    poster(lambda _: said(503, retry_after=asked), waited_s).post(given(1))
    assert all(0 <= one <= 30 for one in waited_s)


@pytest.mark.parametrize("status", [400, 413, 500, 502])
def test_what_is_not_retryable_is_sent_once(status: int) -> None:
    calls: list[int] = []

    def answer(_: bytes) -> HttpAnswer:
        calls.append(1)
        return HttpAnswer(status, {}, b"<html>no JSON</html>")

    outcome = poster(answer, []).post(given(2))
    assert calls == [1]
    assert (outcome.unsure, outcome.stops) == (2, True)
    assert outcome.complaints[0].startswith(str(status))


def test_a_broken_connection_is_never_taken_for_a_yes() -> None:
    def answer(_: bytes) -> HttpAnswer:
        raise NoHttpAnswerError(ConnectionResetError("connection reset"))

    outcome = poster(answer, []).post(given(2))
    assert (outcome.accepted, outcome.unsure, outcome.stops) == (0, 2, True)
    assert "connection reset" in outcome.complaints[0]


def test_one_retryable_fate_in_a_real_answer_is_sent_again(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    publisher.fates["b"] = Fate.NOT_STORED
    waited_s: list[float] = []

    def recover(wait_s: float) -> None:
        waited_s.append(wait_s)
        publisher.fates.clear()

    with HttpClient(gateway.url, timeout_s=60) as server:
        sender = Poster(server, stream="demo", sleep=recover)
        outcome = sender.post([EventInput("1", b'{"id":"a"}'), EventInput("2", b'{"id":"b"}')])
    assert (outcome.accepted, outcome.unsure, outcome.tries) == (2, 0, 2)
    assert sorted(event.id for event in publisher.stored(TOPIC)) == ["a", "b"]
    assert waited_s == [1.0]
