"""A span of a stream goes to its destination again, says so, and only once under one name."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.config.destination import Destination
from shared.event.envelope import CAUSE, EVENT_ID, REPLAY_ID
from shared.event.topics import retry_topic
from shared.proof.archived import ArchiveId
from shared.retry.resend import RESENT_REASON
from tests.support.archive_runs import bucket_of, folder_of, wait_until_kept
from tests.support.kafka_log import read_all
from tests.support.pipeline_runs import document, post_all, put
from tests.support.scripted_destination import scripted_destination
from tests.support.stack_fixtures import PATIENCE_S, RunningHifi, wait_until
from tests.support.topics_anew import ends_of, forget

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


def run(hifi: RunningHifi, data: Path, *argv: str, fails: bool = False) -> str:
    command = [
        *(sys.executable, "-c", "from deploy.cli.app import main; main()", "replay"),
        *("--stream", "replayed", "--destination", "to", "--allow-private"),
        *(() if "--event" in argv else ("--from", "1h")),
        *("--kafka", hifi.kafka, "--data", str(data), *argv),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False, env=os.environ
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr


def test_a_replay_counts_first_then_sends_what_it_counted_once(
    hifi: RunningHifi, tmp_path: Path
) -> None:
    with scripted_destination() as destination:
        to = Destination(stream="replayed", name="to", url=destination.url)
        hifi.add(to)
        events = [{"id": f"e{n}", "partitionkey": f"k{n % 4}"} for n in range(40)]
        assert hifi.post("replayed", events).status_code == 200
        hifi.wait_for_balance(
            to.id, lambda b: b.delivered == 40, what="40 delivered", timeout_s=3 * PATIENCE_S
        )
        assert "40 events of replayed in the span" in run(hifi, tmp_path, "--dry-run")
        assert len(destination.accepted_ids) == sum(destination.accepted_ids.values()) == 40
        said = run(hifi, tmp_path, "--key", "k1", "--id", "r1", "--to", "2100-01-01T00:00Z")
        assert "10 of them have the key k1" in said
        keyed = [r for r in destination.accepted if r.headers.get("hifi-replay") == "r1"]
        assert sorted(e["id"] for request in keyed for e in request.events) == sorted(
            event["id"] for event in events if event["partitionkey"] == "k1"
        )
        assert sum(destination.accepted_ids.values()) == 50
        said = run(hifi, tmp_path, "--key", "k1", "--id", "r1", "--to", "2100-01-01T00:00Z")
        assert "r1 is done already" in said
        assert sum(destination.accepted_ids.values()) == 50
        run(hifi, tmp_path, "--event", "e7", "--id", "one")
        (again,) = [r for r in destination.accepted if r.headers.get("hifi-replay") == "one"]
        assert again.events == [events[7]]
        assert "one is done already" in run(hifi, tmp_path, "--event", "e7", "--id", "one")
        assert "Kafka has no event e99" in run(hifi, tmp_path, "--event", "e99", fails=True)
        assert sum(destination.accepted_ids.values()) == 51
        books = hifi.balance(to.id)
        assert (books.delivered, books.unaccounted) == (40, 0)


def test_a_replay_takes_what_kafka_has_no_more_out_of_the_archive(
    hifi: RunningHifi, tmp_path: Path
) -> None:
    stream, data = "replayed-old", hifi.stack.settings.folder
    more = ("--stream", stream, "--data", str(data))
    with scripted_destination() as destination:
        to = Destination(stream=stream, name="to", url=destination.url)
        hifi.add(to)
        pipeline = document(f"{stream}-archive", stream, to=[{"archive": "archive"}])
        put(hifi.kafka, pipeline)
        old, new = ([{"id": f"{when}{n}"} for n in range(40)] for when in ("old", "new"))
        post_all(hifi, stream, old)
        archive = ArchiveId("default", stream, pipeline.name)
        wait_until_kept(bucket_of(folder_of(hifi)), archive, 40)
        asyncio.run(forget(hifi.kafka, asyncio.run(ends_of(hifi.kafka, stream))))
        post_all(hifi, stream, new)
        hifi.wait_for_balance(
            to.id, lambda b: b.delivered == 80, what="80 delivered", timeout_s=3 * PATIENCE_S
        )
        said = run(hifi, tmp_path, "--dry-run", *more)
        assert "80 events of replayed-old in the span" in said
        run(hifi, tmp_path, "--id", "old", *more)
        again = [r for r in destination.accepted if r.headers.get("hifi-replay") == "old"]
        sent = sorted(event["id"] for request in again for event in request.events)
        assert sent == sorted(event["id"] for event in (*old, *new))
        refused = run(hifi, tmp_path, "--dry-run", "--data", str(tmp_path), *more[:2], fails=True)
        assert "no archive has them: begin with --from 20" in " ".join(refused.split())


def test_a_replay_of_the_api_outlives_a_retrier_that_is_killed_and_loses_nothing(
    hifi: RunningHifi,
) -> None:
    stream, count = "replayed-on", 600
    with scripted_destination() as destination:
        to = Destination(stream=stream, name="to", url=destination.url)
        hifi.add(to)
        assert hifi.post(stream, [{"id": f"e{n}"} for n in range(count)]).status_code == 200
        hifi.wait_for_balance(
            to.id, lambda b: b.delivered == count, what="all delivered", timeout_s=3 * PATIENCE_S
        )
        url = f"{hifi.gateway}/v1/streams/{stream}/replays"
        order = {"destination": "to", "from": "2020-01-01T00:00Z", "id": "on", "rate_per_s": 20}
        assert httpx.post(url, json=order).status_code == 201

        def told() -> dict[str, Any]:
            answer: dict[str, Any] = httpx.get(f"{url}/on").json()
            return answer

        wait_until(lambda: told()["sent"] > 100, what="it is under way", timeout_s=PATIENCE_S)
        retrier = hifi.stack.children["retrier"]
        assert retrier.alive
        retrier.kill()
        at_death = told()
        assert at_death["state"] == "running"
        assert at_death["sent"] < count
        hifi.revive("retrier")
        wait_until(lambda: told()["state"] == "done", what="it is over", timeout_s=3 * PATIENCE_S)
        assert told()["sent"] == count
        tier = asyncio.run(read_all(hifi.kafka, retry_topic("30s", is_parked=True)))
        marks = [dict(record.headers) for record in tier]
        put = [
            mark[EVENT_ID]
            for mark in marks
            if (mark.get(REPLAY_ID), mark[CAUSE]) == (b"on", RESENT_REASON.encode())
        ]
        # Each once, whenever the retrier was killed.
        assert sorted(put) == sorted(f"e{n}".encode() for n in range(count))

        def came() -> Counter[str]:
            replayed = [r for r in destination.accepted if r.headers.get("hifi-replay") == "on"]
            assert all(r.headers["hifi-maybe-duplicate"] for r in replayed)
            return Counter(event["id"] for request in replayed for event in request.events)

        wait_until(lambda: len(came()) == count, what="all came again", timeout_s=3 * PATIENCE_S)
        # What the retrier had under way when it was killed may come twice, and nothing else.
        again = sum(came().values()) - count
        assert again <= at_death["sent"]
        books = hifi.balance(to.id)
        assert (books.delivered, books.unaccounted) == (count, 0)
