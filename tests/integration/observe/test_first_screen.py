"""Four destinations in trouble: every surface says the same word of each, and why."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.config.destination import Destination
from tests.integration.observe.test_observe import figure
from tests.support import cli_runs
from tests.support.scripted_destination import Reply, Script, scripted_destination
from tests.support.stack_fixtures import RunningHifi, fetch, wait_until

STREAM = "troubles"
EVENTS = 60
HOSTILE = b"no healthy\x1b[2J upstream"


def answering(reply: Reply) -> Script:
    return lambda _, __: reply


# Name, how it answers, and the word and the cause that are to be seen.
TROUBLES: list[tuple[str, Script, str, str, str]] = [
    ("locked", answering(Reply(401, body=b"who?")), "REJECTING", "status_401", "who?"),
    ("down", answering(Reply(503, body=HOSTILE)), "FAILING", "status_503", "no healthy [2J up"),
    ("limits", answering(Reply(429, {"retry-after": "60"})), "THROTTLED", "status_429", "429"),
    # The only one at a time takes 60 times 1.5 s for what came at once: some events are soon old.
    ("slow", answering(Reply(delay_s=1.5)), "SLOW", "slow_answers", "s to answer"),
]  # fmt: skip


@pytest.fixture
def four(hifi: RunningHifi) -> Iterator[RunningHifi]:
    with ExitStack() as stack:
        for name, script, *_ in TROUBLES:
            url = stack.enter_context(scripted_destination(script)).url
            one: dict[str, Any] = (
                {"batch_count_max": 1, "parallel_max": 1} if name == "slow" else {}
            )
            hifi.add(Destination(STREAM, name, url, **one))
        yield hifi


def test_every_surface_says_the_same_word_of_it_and_why(four: RunningHifi, tmp_path: Path) -> None:
    settings = four.stack.settings
    console = f"http://127.0.0.1:{settings.console_port}"

    def views() -> dict[str, Any]:
        streams = json.loads(fetch(f"{console}/api/overview") or "{}").get("streams", [])
        found = [one["destinations"] for one in streams if one["name"] == STREAM]
        return {view["name"]: view for view in (found[0] if found else [])}

    assert four.post(STREAM, [{"id": str(number)} for number in range(EVENTS)]).is_success
    for name, _, word, cause, says in TROUBLES:
        # Receipts and flow are told side by side: the word may come a moment before its cause.
        seen = partial(_shows, views, name, word, cause)
        wait_until(seen, what=lambda name=name: f"{name} is seen as it is: {views().get(name)}")  # type: ignore[misc]
        assert says in views()[name]["reason"]
        labels = {"destination": f"{STREAM}/{name}", "verdict": word, "cause": cause}
        assert figure(four, "hifi_observe_verdict", **labels) == 1
        page = fetch(f"{console}/streams/{STREAM}/{name}")
        assert f">{word}</span></h1>" in page
        assert says in page
        assert "\x1b" not in page
    assert views()["down"]["last_refusal"]["text"] == "no healthy [2J upstream"
    # Each event is acknowledged once, and due to four.
    (stream,) = [
        one
        for one in json.loads(fetch(f"{console}/api/overview"))["streams"]
        if one["name"] == STREAM
    ]
    assert stream["acked"] == EVENTS
    # On one screen, and in the terminal: a word may change between two looks, not within one.
    first, status = fetch(console), cli_status(four, tmp_path)
    wide = {"COLUMNS": "240"}
    top = cli_runs.run("top", "--once", "--console", console, folder=tmp_path, env=wide).out
    for name, _, word, _, says in TROUBLES:
        assert f"{STREAM} → {name}" in first
        assert says in first
        (row,) = [row for row in status if (row["stream"], row["destination"]) == (STREAM, name)]
        assert row["verdict"] == word
        assert says in row["reason"]
        assert f"{STREAM}/{name}: " in top
        (line,) = [
            each for each in top.splitlines() if each.strip().startswith(f"{STREAM}/{name} ")
        ]
        assert word in line


def _shows(views: Callable[[], dict[str, Any]], name: str, word: str, cause: str) -> bool:
    view = views().get(name, {})
    return (view.get("verdict"), view.get("cause")) == (word, cause)


def cli_status(hifi: RunningHifi, folder: Path) -> list[dict[str, Any]]:
    port = str(hifi.stack.settings.observe_metrics_port)
    where = ["--kafka", hifi.kafka, "--observe-metrics-port", port]
    rows: list[dict[str, Any]]
    rows = json.loads(cli_runs.run("status", "--json", *where, folder=folder).out)["books"]
    return rows
