"""Four destinations in trouble: every surface shows the same verdict for each, and the reason."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.alerts.rules import NOTES, SCRAPE_S
from deploy.cli.books import observed_books
from deploy.local.ports import pick_free
from shared.config.destination import Destination
from shared.event.topics import RECEIPTS, stream_and_name
from shared.proof.receipt import receipts_of
from shared.runtime.clock import now_ms
from tests.integration.observe.test_observe import figure
from tests.support.deploy import cli_runs
from tests.support.deploy.stack_fixtures import RunningHifi, fetch, wait_until
from tests.support.observe.prometheus_programs import ask, prometheus
from tests.support.servers.scripted_destination import Reply, Script, scripted_destination

STREAM = "troubles"
EVENTS = 60
HOSTILE = b"no healthy\x1b[2J upstream"


def answering(reply: Reply) -> Script:
    return lambda _, __: reply


# Name, answers, and the verdict, cause and text that must be shown.
TROUBLES: list[tuple[str, Script, str, str, str]] = [
    ("locked", answering(Reply(401, body=b"who?")), "REJECTING", "status_401", "who?"),
    ("down", answering(Reply(503, body=HOSTILE)), "FAILING", "status_503", "no healthy [2J up"),
    ("limits", answering(Reply(429, {"retry-after": "60"})), "RATE-LIMITED", "status_429", "429"),
    # With one request at a time, the first events take 60 times 1.5 s: some are soon old.
    ("slow", answering(Reply(delay_s=1.5)), "SLOW", "slow_answers", "s to answer"),
]  # fmt: skip


@contextmanager
def four_troubles(hifi: RunningHifi, stream: str) -> Iterator[None]:
    """Make a stream with a destination in each kind of trouble."""
    with ExitStack() as stack:
        for name, script, *_ in TROUBLES:
            url = stack.enter_context(scripted_destination(script)).url
            one: dict[str, Any] = (
                {"batch_count_max": 1, "parallel_max": 1} if name == "slow" else {}
            )
            hifi.add(Destination(stream, name, url, **one))
        yield


@pytest.fixture
def four(hifi: RunningHifi) -> Iterator[RunningHifi]:
    with four_troubles(hifi, STREAM):
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
        # Receipts and flow arrive separately: the verdict may come a moment before its cause.
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
    # Each event is acknowledged once, and owed to four destinations.
    (stream,) = [
        one
        for one in json.loads(fetch(f"{console}/api/overview"))["streams"]
        if one["name"] == STREAM
    ]
    assert stream["acked"] == EVENTS
    # A verdict may change between two looks, so compare within one screen.
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


@pytest.mark.long
def test_within_15_s_of_the_first_outcome_every_surface_says_it(
    hifi: RunningHifi, tmp_path: Path
) -> None:
    (own,) = pick_free(1)
    asked = hifi.stack.settings.observe_metrics_port
    # Prometheus by default judges once a minute; our alert rules have an interval of their own.
    judging = prometheus(tmp_path, own=own, scraped=asked, asks_s=SCRAPE_S, judges_s=60)
    with four_troubles(hifi, "clocked"), judging as url:
        wait_until(lambda: "ready" in fetch(f"{url}/-/ready").lower(), what="Prometheus is ready")
        assert hifi.post("clocked", [{"id": str(number)} for number in range(EVENTS)]).is_success
        seen: dict[tuple[str, str], int] = {}

        def all_say_it() -> bool:
            for surface, shown in surfaces(hifi, "clocked", url).items():
                for name, _, word, cause, says in TROUBLES:
                    said = shown.get(name, "")
                    if word in said and (says in said or cause in said):
                        seen.setdefault((surface, name), now_ms())
            return len(seen) == 4 * len(TROUBLES)

        wait_until(all_say_it, what=lambda: f"all say it; these do: {sorted(seen)}")
    told_ms: dict[str, list[int]] = {name: [] for name, *_ in TROUBLES}
    for record in hifi.records(RECEIPTS):
        for receipt in receipts_of(record.value):
            stream, name = stream_and_name(receipt.destination_id) if receipt else ("", "")
            if stream == "clocked":
                told_ms[name].append(record.timestamp)
    late_s = {f"{who} by {which}": (at - min(told_ms[who])) / 1000
              for (which, who), at in seen.items()}  # fmt: skip
    assert max(late_s.values()) <= 15, late_s


def surfaces(hifi: RunningHifi, stream: str, prometheus_url: str) -> dict[str, dict[str, str]]:
    """Return each destination's state on the first screen, in `hifi status`, the API and alerts."""
    settings = hifi.stack.settings
    console = f"http://127.0.0.1:{settings.console_port}"
    streams = json.loads(fetch(f"{console}/api/overview") or "{}").get("streams", [])
    ours: list[list[dict[str, Any]]]
    ours = [one["destinations"] for one in streams if one["name"] == stream]
    # The table of verdicts comes before other tables with the same names, and must win.
    lines = fetch(console).split("<tr")[::-1]
    rows = observed_books(hifi.kafka, port=settings.observe_metrics_port).rows
    return {
        "first screen": {
            name: line for name, *_ in TROUBLES for line in lines if f"{stream}/{name}" in line
        },
        "status": {
            row.destination: f"{row.verdict.value} {row.reason}"
            for row in rows
            if row.stream == stream and row.destination and row.verdict
        },
        "api": {one["name"]: f"{one['verdict']} {one['reason']}" for some in ours for one in some},
        "alert": {
            one["labels"]["destination"].removeprefix(f"{stream}/"): one["annotations"]["summary"]
            for one in ask(prometheus_url, "alerts")["alerts"]
            if one["labels"]["alertname"] == NOTES[0].name and one["state"] == "firing"
        },
    }


def _shows(views: Callable[[], dict[str, Any]], name: str, word: str, cause: str) -> bool:
    view = views().get(name, {})
    return (view.get("verdict"), view.get("cause")) == (word, cause)


def cli_status(hifi: RunningHifi, folder: Path) -> list[dict[str, Any]]:
    port = str(hifi.stack.settings.observe_metrics_port)
    where = ["--kafka", hifi.kafka, "--observe-metrics-port", port]
    shown: dict[str, Any] = {}

    def by_observe() -> bool:
        # While observe answers late, `hifi status` counts by itself, and gives no verdicts.
        shown.update(json.loads(cli_runs.run("status", "--json", *where, folder=folder).out))
        return bool(shown["counted_by"] == "observe")

    wait_until(by_observe, what=lambda: f"observe answers `hifi status`: {shown['note']}")
    rows: list[dict[str, Any]] = shown["books"]
    return rows
