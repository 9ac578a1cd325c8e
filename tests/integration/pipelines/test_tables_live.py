"""Tables and pipelines on a running Hifi: events are joined with rows, and become rows."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.pipelines.pipeline_runs import START_S, post_all, written

pytestmark = pytest.mark.integration

IN, OUT, PIPELINE = "joined-in", "joined-out", "joined"
PEOPLE, LAST = "joined-people", "joined-last"
DOCUMENT: dict[str, Any] = {
    "from": {"stream": IN},
    "schema": "id STRING, who STRING",
    "steps": [
        {"enrich": {"table": PEOPLE, "key": "who", "as": "p", "schema": "name STRING, n INT"}},
        {"select": {"id": "id", "name": "p.name", "n": "p.n"}},
        {"key": "name"},
    ],
    "to": [{"stream": OUT}, {"table": LAST, "when": "name IS NOT NULL"}],
    "match": "all",
}
# The promise is 2 s for 99 of 100; this machine has other work.
USED_WITHIN_S = 10.0


@dataclass
class JoiningPipeline:
    """A pipeline that joins, with its input and output."""

    hifi: RunningHifi
    api: httpx.Client
    sent: int = 0

    def row(self, **row: Any) -> None:
        answer = self.api.put(f"/v1/tables/{PEOPLE}/rows/ada", json=row)
        assert answer.status_code == 200, answer.text

    def event(self) -> str:
        self.sent += 1
        post_all(self.hifi, IN, [{"id": f"e-{self.sent}", "who": "ada"}])
        return f"e-{self.sent}"

    def has(self, event: str) -> bool:
        return event in self.out()

    def out(self) -> dict[str, Any]:
        return {each.value["id"]: each for each in written(self.hifi.kafka, OUT)}


@pytest.fixture
def joined(hifi: RunningHifi) -> Iterator[JoiningPipeline]:
    with httpx.Client(base_url=hifi.gateway, timeout=60) as api:
        for path, body in (
            (f"streams/{IN}", {"partition_count": 1}),
            (f"streams/{OUT}", {"partition_count": 1}),
            (f"tables/{PEOPLE}", {}),
            (f"tables/{LAST}", {"written_by": PIPELINE}),
            (f"pipelines/{PIPELINE}", DOCUMENT),
        ):
            made = api.put(f"/v1/{path}", json=body)
            assert made.status_code in {200, 201}, made.text
        path = f"/v1/pipelines/{PIPELINE}"

        def runs() -> bool:
            return bool(api.get(path).json()["state"]["standing"] == "running")

        wait_until(runs, what="the pipeline runs", timeout_s=START_S)
        yield JoiningPipeline(hifi, api)
        for path in (f"pipelines/{PIPELINE}", f"tables/{PEOPLE}", f"tables/{LAST}"):
            assert api.delete(f"/v1/{path}").status_code == 204


def test_events_meet_rows_as_they_are_and_rows_come_of_events(joined: JoiningPipeline) -> None:
    joined.row(name="Ada", n=1)
    first = joined.event()
    wait_until(lambda: first in joined.out(), what="the first event has arrived")
    # Later events use the changed row.
    for value in (2, 3):
        joined.row(name="Ada", n=value)
        began_s = time.monotonic()
        while True:
            event = joined.event()
            wait_until(partial(joined.has, event), what="the event has arrived")
            if joined.out()[event].value["n"] == value:
                break
            assert time.monotonic() < began_s + USED_WITHIN_S
    told = joined.out()[event].headers["hifi-table"].decode()
    table, _, offset = told.partition("@")
    assert (table, int(offset) >= 3) == (PEOPLE, True)

    def last() -> Any:
        answer = joined.api.get(f"/v1/tables/{LAST}/rows/Ada")
        return answer.json()["row"]["id"] if answer.status_code == 200 else None

    wait_until(lambda: last() == event, what="the last value is the row")
    refused = joined.api.put(f"/v1/tables/{LAST}/rows/Ada", json={})
    assert refused.json()["code"] == "table_in_use"
    assert stream_topic(IN) in joined.out()[event].headers["hifi-origin"].decode()
    # No event waits for the process that fills the table, or for the one that follows it.
    owner = joined.hifi.stack.settings.folder / "tables" / "follower" / "owner.lock"
    process = int(owner.read_text())
    os.kill(process, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        away = joined.event()
        wait_until(lambda: away in joined.out(), what="no event waits")
        assert time.monotonic() - began_s < USED_WITHIN_S
        assert joined.out()[away].value["n"] == 3
        age_ms = joined.api.get(f"/v1/tables/{PEOPLE}/rows/ada").json()["as_of"]["age_ms"]
        assert age_ms > 500
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_with_a_table_s_source_away_for_a_minute_no_event_waits(joined: JoiningPipeline) -> None:
    joined.row(name="Ada", n=1)
    first = joined.event()
    wait_until(partial(joined.has, first), what="the first event has arrived")
    owner = joined.hifi.stack.settings.folder / "tables" / "follower" / "owner.lock"
    process = int(owner.read_text())
    os.kill(process, signal.SIGSTOP)
    took_s = []
    try:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            wait_until(partial(joined.has, joined.event()), what="no event waits")
            took_s.append(time.monotonic() - began_s)
        age_ms = joined.api.get(f"/v1/tables/{PEOPLE}/rows/ada").json()["as_of"]["age_ms"]
    finally:
        os.kill(process, signal.SIGCONT)
    sys.stdout.write(
        f"{len(took_s)} events while away, the slowest {max(took_s):.2f} s; age {age_ms} ms\n"
    )
    assert max(took_s) < USED_WITHIN_S
    assert age_ms > 55_000


@pytest.mark.long
@pytest.mark.timeout(2_400)
def test_of_a_hundred_changes_ninety_nine_are_used_within_two_seconds(
    joined: JoiningPipeline,
) -> None:
    used_s = []
    for value in range(100, 200):
        joined.row(name="Ada", n=value)
        changed_s = time.monotonic()
        while True:
            posted_s = time.monotonic()
            event = joined.event()
            wait_until(partial(joined.has, event), what="the event has arrived", look_s=0.02)
            if joined.out()[event].value["n"] == value:
                break
        used_s.append(posted_s - changed_s)
    found = sorted(used_s)[-2]
    sys.stdout.write(
        f"99 of 100 changed rows were used by events posted {found:.3f} s later, or sooner\n"
    )
    assert found < 2.0


@pytest.mark.long
@pytest.mark.timeout(2_400)
def test_rows_are_answered_while_their_lane_is_killed_ten_times(joined: JoiningPipeline) -> None:
    joined.row(name="Ada", n=1)
    joined.event()
    path = f"/v1/tables/{LAST}/rows/Ada"
    wait_until(lambda: joined.api.get(path).status_code == 200, what="there is a row")
    answers: Counter[int] = Counter()
    over = Event()

    def ask() -> None:
        with httpx.Client(base_url=joined.hifi.gateway, timeout=10) as api:
            while not over.wait(0.02):
                answers[api.get(path).status_code] += 1

    asking = Thread(target=ask)
    asking.start()
    try:
        for _ in range(10):
            event = joined.event()
            joined.hifi.stack.children["pipelines"].kill()
            joined.hifi.revive("pipelines")
            wait_until(partial(joined.has, event), what="the pipeline continues", timeout_s=START_S)
    finally:
        over.set()
        asking.join()
    sys.stdout.write(f"GETs by status: {dict(answers)}\n")
    assert answers.keys() == {200}
