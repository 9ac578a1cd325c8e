"""Replays live: from an archive by a command, and by a retrier that is killed meanwhile."""

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
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, wait_until
from tests.support.kafka.kafka_log import read_all
from tests.support.kafka.topics_anew import ends_of, forget
from tests.support.pipelines.archive_runs import bucket_of, folder_of, wait_until_kept
from tests.support.pipelines.pipeline_runs import document, post_all, put
from tests.support.servers.scripted_destination import scripted_destination

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


COMMAND = (sys.executable, "-c", "from deploy.cli.app import main; main()", "replay",
           "--destination", "to")  # fmt: skip


def run(hifi: RunningHifi, *argv: str, fails: bool = False) -> str:
    command = [*COMMAND, "--kafka", hifi.kafka, *argv]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=os.environ
    )
    assert (done.returncode != 0) == fails, done.stderr
    return " ".join(done.stderr.split())


def test_what_only_the_archive_has_is_sent_again_once_out_of_it(
    hifi: RunningHifi, tmp_path: Path
) -> None:
    stream, data, count = "replayed-old", str(hifi.stack.settings.folder), 1_200
    whole = ("--stream", stream, "--from", "2020-01-01T00:00Z", "--data", data)
    with scripted_destination() as destination:
        to = Destination(stream=stream, name="to", url=destination.url)
        hifi.add(to)
        pipeline = document(f"{stream}-archive", stream, to=[{"archive": "archive"}])
        put(hifi.kafka, pipeline)
        old, new = ([{"id": f"{when}{n}"} for n in range(count)] for when in ("old", "new"))
        post_all(hifi, stream, old)
        archive = ArchiveId("default", stream, pipeline.name)
        wait_until_kept(bucket_of(folder_of(hifi)), archive, count)
        assert "Kafka has all events of replayed-old from that time on" in run(
            hifi, *whole, fails=True
        )
        asyncio.run(forget(hifi.kafka, asyncio.run(ends_of(hifi.kafka, stream))))
        post_all(hifi, stream, new)
        hifi.wait_for_balance(
            to.id, lambda b: b.delivered == 2 * count, what="delivered", timeout_s=3 * PATIENCE_S
        )
        assert f"{count:,} events of replayed-old in the archive" in run(hifi, *whole, "--dry-run")
        assert "no archive has them" in run(hifi, *whole, "--data", str(tmp_path), fails=True)

        slow = (*whole, "--rate", "2000", "--id", "old")
        assert f"Done: {count:,} are queued" in run(hifi, *slow)
        assert "The replay old is done" in run(hifi, *slow, fails=True)
        told = httpx.get(f"{hifi.gateway}/v1/streams/{stream}/replays/old").json()
        assert (told["state"], told["count"], told["sent"]) == ("done", count, count)

        def came() -> Counter[str]:
            again = [r for r in destination.accepted if r.headers.get("hifi-replay") == "old"]
            return Counter(event["id"] for request in again for event in request.events)

        wait_until(
            lambda: len(came()) == count, what="all events arrived again", timeout_s=3 * PATIENCE_S
        )
        assert came() == Counter(event["id"] for event in old)
        goes_on_until_it_is_cancelled(hifi, stream, count, *whole)
        books = hifi.balance(to.id)
        assert (books.delivered, books.unaccounted) == (2 * count, 0)


def goes_on_until_it_is_cancelled(hifi: RunningHifi, stream: str, count: int, *whole: str) -> None:
    """Kill the command and run it again: the events that it had queued are queued once."""
    url = f"{hifi.gateway}/v1/streams/{stream}/replays/cut"
    command = [*COMMAND, "--kafka", hifi.kafka, *whole, "--id", "cut", "--rate", "300"]

    def sent() -> int:
        return int(httpx.get(url).json().get("sent", 0))

    with subprocess.Popen(command) as running:
        wait_until(lambda: sent() > 0, what="the replay runs", timeout_s=PATIENCE_S)
        running.kill()
    before = sent()
    assert 0 < before < count
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as again:
        wait_until(lambda: sent() > before, what="the replay continues", timeout_s=PATIENCE_S)
        assert httpx.delete(url).json()["state"] == "cancelled"
        _, said = again.communicate(timeout=PATIENCE_S)
    assert "was cancelled meanwhile" in " ".join(said.split())
    tier = asyncio.run(read_all(hifi.kafka, retry_topic("30s", is_parked=True)))
    headers = [dict(record.headers) for record in tier]
    put_there = [each[EVENT_ID] for each in headers if each.get(REPLAY_ID) == b"cut"]
    assert len(put_there) == len(set(put_there)) == sent()


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

        wait_until(
            lambda: told()["sent"] > 100, what="the replay is under way", timeout_s=PATIENCE_S
        )
        retrier = hifi.stack.children["retrier"]
        assert retrier.alive
        retrier.kill()
        at_death = told()
        assert at_death["state"] == "running"
        assert at_death["sent"] < count
        hifi.revive("retrier")
        wait_until(
            lambda: told()["state"] == "done", what="the replay is over", timeout_s=3 * PATIENCE_S
        )
        assert told()["sent"] == count
        tier = asyncio.run(read_all(hifi.kafka, retry_topic("30s", is_parked=True)))
        headers = [dict(record.headers) for record in tier]
        put = [
            each[EVENT_ID]
            for each in headers
            if (each.get(REPLAY_ID), each[CAUSE]) == (b"on", RESENT_REASON.encode())
        ]
        # Each event once, whenever the retrier was killed.
        assert sorted(put) == sorted(f"e{n}".encode() for n in range(count))

        def came() -> Counter[str]:
            replayed = [r for r in destination.accepted if r.headers.get("hifi-replay") == "on"]
            assert all(r.headers["hifi-maybe-duplicate"] for r in replayed)
            return Counter(event["id"] for request in replayed for event in request.events)

        wait_until(
            lambda: len(came()) == count, what="all events arrived again", timeout_s=3 * PATIENCE_S
        )
        # Only events that the retrier had under way when it was killed may arrive twice.
        again = sum(came().values()) - count
        assert again <= at_death["sent"]
        books = hifi.balance(to.id)
        assert (books.delivered, books.unaccounted) == (count, 0)
