"""A pipeline is rebuilt beside itself and takes over: no event is missed, even with kills."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest

from shared.event.times import rfc3339
from shared.event.topics import kept_topic, pipeline_lane
from shared.proof.archived import ArchiveId
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.topics_anew import ends_of
from tests.support.kafka.topics_anew import forget as cut
from tests.support.pipelines.archive_runs import bucket_of, folder_of, wait_until_kept
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    post_all,
    wait_until_all_is_done,
    written,
)
from tests.support.pipelines.window_runs import forget, topics

pytestmark = pytest.mark.integration

MINUTE_MS = 60_000
ARCHIVE = [{"archive": "archive"}]


def put(hifi: RunningHifi, path: str, body: dict[str, Any], **query: str) -> dict[str, Any]:
    answer = httpx.put(f"{hifi.gateway}/v1/{path}", json=body, params=query, timeout=30)
    assert answer.is_success, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def get(hifi: RunningHifi, path: str) -> dict[str, Any]:
    answer = httpx.get(f"{hifi.gateway}/v1/{path}", timeout=30)
    assert answer.is_success, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def counting(name: str, source: str, every: str, **more: Any) -> dict[str, Any]:
    window = {"every": every, "late": "1 hour", "by": ["k"], "time": "at"} | more
    fields = document(
        name,
        source,
        schema="k INT, at TIMESTAMP",
        steps=[{"window": {"compute": {"n": "count(*)"}} | window}],
        to=[{"table": f"{name}-rows"}, {"stream": f"{name}-told"}],
    ).to_fields(with_defaults=False)
    return {each: value for each, value in fields.items() if each != "others"}


def made(hifi: RunningHifi, name: str, source: str) -> None:
    for stream in (source, f"{name}-told"):
        put(hifi, f"streams/{stream}", {})
    put(hifi, f"tables/{name}-rows", {"written_by": name})


def events(count: int, now_ms: int) -> list[dict[str, Any]]:
    return [
        {"k": n % 5, "at": rfc3339(now_ms - (n * 997) % (10 * MINUTE_MS))} for n in range(count)
    ]


def recount(all_events: list[dict[str, Any]], every_ms: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for event in all_events:
        at_ms = round(datetime.fromisoformat(event["at"]).timestamp() * 1000)
        found[f"{event['k']}@{rfc3339(at_ms - at_ms % every_ms)}"] += 1
    return found


def rows(hifi: RunningHifi, table: str) -> dict[str, int]:
    answer = httpx.get(f"{hifi.gateway}/v1/tables/{table}/rows", timeout=30)
    if answer.status_code == 503:
        # The table's copy is being built.
        return {}
    return {row["key"]: row["row"]["n"] for row in answer.json()["rows"]}


def length_s(row: dict[str, Any]) -> float:
    start, end = (datetime.fromisoformat(row[f"window_{name}"]) for name in ("start", "end"))
    return (end - start).total_seconds()


@contextmanager
def looked_at(hifi: RunningHifi, table: str) -> Iterator[list[tuple[str, set[float]]]]:
    """Read the table again and again; yield each answer with its windows' lengths."""
    stop = threading.Event()
    seen: list[tuple[str, set[float]]] = []

    def look() -> None:
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                answer = client.get(f"{hifi.gateway}/v1/tables/{table}/rows")
                said = answer.json()
                lengths_s = {length_s(row["row"]) for row in said.get("rows", [])}
                seen.append((said.get("detail", "rows"), lengths_s))
                time.sleep(0.02)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join(timeout=30)


def wait_for_rows(hifi: RunningHifi, table: str, expected: Counter[str]) -> None:
    wait_until(
        lambda: rows(hifi, table) == expected,
        what=lambda: f"{table} equals a recount: {rows(hifi, table)}, {expected}",
        timeout_s=START_S,
    )


def wait_for_generation(hifi: RunningHifi, name: str, generation: int) -> None:
    wait_until(
        lambda: get(hifi, f"pipelines/{name}")["generation"] == generation,
        what=lambda: f"{name} is replaced: {get(hifi, f'pipelines/{name}')}",
        timeout_s=START_S,
    )


def test_a_window_is_changed_and_readers_have_one_or_the_other(hifi: RunningHifi) -> None:
    name, source = "hourly-once", "metered"
    made(hifi, name, source)
    put(hifi, f"pipelines/{name}", counting(name, source, "90 seconds"))
    all_events = events(500, int(time.time() * 1000))
    post_all(hifi, source, all_events)
    wait_for_rows(hifi, f"{name}-rows", recount(all_events, 90_000))
    with looked_at(hifi, f"{name}-rows") as seen:
        put(
            hifi,
            f"pipelines/{name}/replacement",
            counting(name, source, "1 hour"),
            **{"from": "7d"},
        )
        more = events(200, int(time.time() * 1000))
        post_all(hifi, source, more)
        wait_for_generation(hifi, name, 2)
        wait_for_rows(hifi, f"{name}-rows", recount(all_events + more, 3_600_000))
        wait_until(lambda: seen[-1][1] == {3_600.0}, what="the reader has looked again")
    assert {said for said, _ in seen} == {"rows"}, "a reader got no answer"
    lengths_s = {tuple(lengths_s) for _, lengths_s in seen}
    assert lengths_s == {(90.0,), (3_600.0,)}, "an answer mixes generations, or lacks rows"
    wait_until(
        lambda: get(hifi, f"pipelines/{name}")["state"]["standing"] == "running",
        what="the replacement runs in its place",
    )
    last = events(10, int(time.time() * 1000))
    post_all(hifi, source, last)
    wait_for_rows(hifi, f"{name}-rows", recount(all_events + more + last, 3_600_000))
    told = [row.event_id for row in written(hifi.kafka, f"{name}-told")]
    assert len(told) == len(set(told))
    kept = kept_topic(name)
    wait_until(lambda: kept not in topics(hifi.kafka), what="the old kept data is deleted")
    lane = document(name, source, generation=2, to=[{"dead": True}])
    wait_until_all_is_done(hifi, lane, 710)


def test_killed_while_it_is_built_it_goes_on_and_final_rows_are_told_once(
    hifi: RunningHifi,
) -> None:
    name, source = "told-once", "tellings"
    made(hifi, name, source)
    # Long enough for a busy machine to store its events before they are late by its own clock.
    final = {"emit": "final", "late": "5 seconds"}
    put(hifi, f"pipelines/{name}", counting(name, source, "2 seconds", **final))
    # Windows of both generations end together: one that is open at the change is repeated.
    wait_until(
        lambda: 2_000 <= time.time() * 1000 % 4_000 < 2_300,
        what="the window has just begun",
        look_s=0.01,
    )
    now_ms = int(time.time() * 1000)
    all_events = [{"k": n % 3, "at": rfc3339(now_ms)} for n in range(3_000)]
    post_all(hifi, source, all_events)
    wait_until(lambda: len(written(hifi.kafka, f"{name}-told")) >= 3, what="the windows are over")
    put(hifi, f"pipelines/{name}/replacement", counting(name, source, "4 seconds", **final))
    hifi.wait_for_balance(
        pipeline_lane(source, name, 2),
        lambda balance: balance.delivered > 0 or get(hifi, f"pipelines/{name}")["generation"] == 2,
        what="the replacement is being built",
        timeout_s=START_S,
    )
    hifi.stack.children["pipelines"].kill()
    hifi.revive("pipelines")
    wait_for_generation(hifi, name, 2)
    wait_until(
        lambda: get(hifi, f"pipelines/{name}")["state"]["standing"] == "running",
        what="the replacement runs in its place",
        timeout_s=START_S,
    )
    now_ms = int(time.time() * 1000)
    post_all(hifi, source, [{"k": n % 3, "at": rfc3339(now_ms)} for n in range(90)])

    def told() -> int:
        return sum(row.value["n"] for row in written(hifi.kafka, f"{name}-told"))

    wait_until(
        lambda: told() >= 3_090,
        what=lambda: f"{told()} of 3,090 are reported: {get(hifi, f'pipelines/{name}')}",
    )
    assert told() == 3_090, "each event was reported once"


def test_a_window_is_built_anew_of_what_only_an_archive_has(hifi: RunningHifi) -> None:
    name, source = "aged-counts", "aged-metered"
    made(hifi, name, source)
    put(hifi, f"pipelines/{source}-archive", {"from": {"stream": source}, "to": ARCHIVE})
    put(hifi, f"pipelines/{name}", counting(name, source, "1 minute"))
    all_events = events(400, int(time.time() * 1000))
    post_all(hifi, source, all_events)
    wait_for_rows(hifi, f"{name}-rows", recount(all_events, MINUTE_MS))
    archive = ArchiveId("default", source, f"{source}-archive")
    wait_until_kept(bucket_of(folder_of(hifi)), archive, len(all_events))
    ends = asyncio.run(ends_of(hifi.kafka, source))
    # One Kafka partition is now empty.
    upto = {
        where: max(0, end - nth % 3 * 5) for nth, (where, end) in enumerate(sorted(ends.items()))
    }
    asyncio.run(cut(hifi.kafka, upto))
    more = events(50, int(time.time() * 1000))
    post_all(hifi, source, more)
    built = counting(name, source, "2 minutes")
    note = put(hifi, f"pipelines/{name}/replacement", built, **{"from": "1d"})["state"]["note"]
    assert f"It reads the archive {source}-archive from" in note
    wait_for_generation(hifi, name, 2)
    wait_for_rows(hifi, f"{name}-rows", recount(all_events + more, 2 * MINUTE_MS))


def test_what_is_lost_is_built_anew(hifi: RunningHifi) -> None:
    name, source = "lost-once", "lost-counts"
    made(hifi, name, source)
    put(hifi, f"pipelines/{name}", counting(name, source, "1 minute"))
    all_events = events(300, int(time.time() * 1000))
    post_all(hifi, source, all_events)
    wait_for_rows(hifi, f"{name}-rows", recount(all_events, MINUTE_MS))
    hifi.stack.children["pipelines"].kill()
    forget(hifi.kafka, kept_topic(name))
    hifi.stack.restarts.forgive()
    hifi.stack.look_after()
    wait_until(
        lambda: get(hifi, f"pipelines/{name}")["state"]["standing"] == "refused",
        what="the loss is reported",
        timeout_s=START_S,
    )
    assert "replace" in get(hifi, f"pipelines/{name}")["state"]["why"]
    more = events(50, int(time.time() * 1000))
    post_all(hifi, source, more)
    put(hifi, f"pipelines/{name}/replacement", counting(name, source, "1 minute"))
    wait_for_generation(hifi, name, 2)
    wait_for_rows(hifi, f"{name}-rows", recount(all_events + more, MINUTE_MS))
