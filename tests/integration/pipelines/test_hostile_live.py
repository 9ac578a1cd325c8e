"""Sixty hostile documents and events, live: each is refused with its place, or harms only itself.

They arrive one after the other, and then ten at once. Another tenant's pipeline runs beside them.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

import httpx
import pytest

from shared.event.envelope import ACCEPTED_AT
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.pipelines.hostile_pipelines import HOSTILE, Hostile
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    post_all,
    put,
    wait_for_state,
    wait_until_all_is_done,
    written,
)

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3_600)]

AT_ONCE = 10
# An executor that is ended may delay others by this much.
LATE_MS = 15_000


class Outcome(NamedTuple):
    """The outcome of one hostile document."""

    hostile: Hostile
    how: str
    pointer: str
    took_s: float


@contextmanager
def calm(hifi: RunningHifi, name: str) -> Iterator[list[int]]:
    """Run a pipeline that gets an event twice a second, none of which may be lost.

    Yield how late each was, once all are there.
    """
    late_ms = list[int]()
    pipeline = document(name, name, schema="n BIGINT", to=[{"stream": f"{name}-out"}])
    put(hifi.kafka, pipeline)
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    post_all(hifi, name, [{"n": -1}])
    wait_until_all_is_done(hifi, pipeline, 1)
    count, is_over = 1, Event()

    def post() -> None:
        nonlocal count
        while not is_over.wait(0.5):
            post_all(hifi, name, [{"n": count}])
            count += 1

    thread = Thread(target=post)
    thread.start()
    try:
        yield late_ms
    finally:
        is_over.set()
        thread.join()
    wait_until_all_is_done(hifi, pipeline, count)
    late_ms += sorted(
        row.timestamp_ms - int(row.headers[ACCEPTED_AT])
        for row in written(hifi.kafka, f"{name}-out")
    )
    sys.stdout.write(
        f"{name}: {count} events, late by {late_ms[count // 2]} ms in the median,"
        f" {late_ms[count * 99 // 100]} ms at p99, {late_ms[-1]} ms at most\n"
    )
    assert len(late_ms) == count


def outcome_of(hifi: RunningHifi, hostile: Hostile, round_: int) -> Outcome:
    name = f"{hostile.kind}-{hostile.name}-{round_}"
    began_s = time.monotonic()
    with httpx.Client(base_url=hifi.gateway, timeout=60) as client:

        def ended(how: str, pointer: str = "") -> Outcome:
            took_s = time.monotonic() - began_s
            return Outcome(hostile, how, pointer, took_s)

        for stream in (name, "hostile-out"):
            assert client.put(f"/v1/streams/{stream}", json={}).status_code in {200, 201}
        told = client.put(f"/v1/pipelines/{name}", json=hostile.document(name, "hostile-out"))
        if told.status_code in {413, 422}:
            return ended("refused at once", told.json().get("pointer", "/"))
        assert told.status_code in {200, 201}, told.text
        state: dict[str, str] = {}

        def is_judged() -> bool:
            state.update(client.get(f"/v1/pipelines/{name}").json()["state"])
            return state["standing"] != "checking"

        wait_until(is_judged, what=lambda: f"{name} is judged: {state}", timeout_s=START_S)
        if state["standing"] == "refused":
            return ended("refused by the judge", state["pointer"])
        posted = client.post(
            f"/v1/streams/{name}/events",
            content=hostile.event.encode(),
            headers={"content-type": "application/json"},
        )
        if posted.status_code != 200 or not posted.json()["accepted"]:
            return ended(f"event refused: {posted.status_code}", "event")
        balances = hifi.wait_for_balance
        balances(
            f"{name}/pipeline:{name}",
            lambda balance: balance.acked == 1 and not (balance.queued or balance.unaccounted),
            what=f"{name} is done with its event",
            timeout_s=START_S,
        )
        balance = hifi.balance(f"{name}/pipeline:{name}")
        end = "dead" if balance.dead else "delivered" if balance.delivered else "filtered"
        assert client.delete(f"/v1/pipelines/{name}").status_code in {200, 204}
        return ended(f"accepted, its event is {end}")


def test_sixty_hostile_documents_and_events_cost_nobody_else(hifi: RunningHifi) -> None:
    assert len({each.name for each in HOSTILE}) == 60
    before = {name: child.pid for name, child in hifi.stack.children.items()}
    found: list[Outcome] = []
    with calm(hifi, "calm") as late_ms:
        found += [outcome_of(hifi, each, 1) for each in HOSTILE]
    with calm(hifi, "calm-too") as late_too_ms, ThreadPoolExecutor(AT_ONCE) as several:
        found += several.map(lambda each: outcome_of(hifi, each, 2), HOSTILE)
    for one in found:
        sys.stdout.write(
            f"{one.hostile.kind:9} {one.hostile.name:17} {one.took_s:6.1f} s  {one.how}"
            f" {one.pointer}\n"
        )
    assert max(late_ms + late_too_ms) < LATE_MS
    assert not [one for one in found if one.how.startswith("refused") and not one.pointer]
    assert {name: child.pid for name, child in hifi.stack.children.items()} == before
