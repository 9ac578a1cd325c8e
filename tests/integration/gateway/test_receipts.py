"""A request is followed through a real Kafka to a real destination."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from gateway.routes import request_ids
from shared.config.destination import Destination
from shared.event.envelope import Envelope, History
from shared.event.record import Origin, RecordOut
from shared.event.topics import fixed_specs, stream_topic
from shared.proof.acked import AckedRequest
from shared.proof.receipt import ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import DeadLetter, RetryLater
from shared.retry.routing import route, route_receipt
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup import event_search
from shared.runtime.kafka.lookup.event_search import find_request
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.gateway.gateway_process import Gateway, new_stream, running
from tests.support.kafka.broker_faults import frozen
from tests.support.kafka.config_records import write_config
from tests.support.kafka.kafka_log import write_rows
from tests.support.servers.scripted_destination import Reply, Request, scripted_destination

pytestmark = pytest.mark.integration

SCHEDULE = RetrySchedule()
BUSY = replace(
    History.fresh(now_ms=now_ms(), deadline_s=SCHEDULE.deadline_s),
    attempt_count=1,
    last_status=503,
    last_detail="busy",
)
NO = replace(BUSY, last_status=400)


def write(cluster: Cluster, rows: Sequence[RecordOut]) -> None:
    async def run() -> None:
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing(fixed_specs([tier.name for tier in SCHEDULE.tiers]))
        await write_rows(cluster.bootstrap_servers, rows)

    asyncio.run(run())


def send(gateway: Gateway, stream: str, ids: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """POST events with keys; return the id of the answer, and each event's place."""
    answer = httpx.post(
        f"{gateway.url}/v1/streams/{stream}/events?results=all",
        json=[{"id": one, "partitionkey": one} for one in ids],
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    places = {one["id"]: (one["partition"], one["offset"]) for one in answer.json()["results"]}
    return answer.json()["request_id"], places


def follow(url: str, request_id: str, **query: str) -> httpx.Response:
    return httpx.get(f"{url}/v1/receipts/{request_id}", params=query, timeout=30)


def outcome(envelopes: Sequence[Envelope], what: ReceiptOutcome, reason: str) -> RecordOut:
    return route_receipt(
        make_receipt(
            facts_of(envelopes),
            destination_id=f"{envelopes[0].stream}/to",
            outcome=what,
            reason=reason,
            batch_id="b",
            attempt=1,
            started_at_ms=now_ms(),
            ended_at_ms=now_ms() + 10,
        )
    )


def a_followed_stream(kafka: Cluster) -> Destination:
    """Return a stream with one destination, whose lane nobody runs."""
    stream = new_stream(kafka.bootstrap_servers)
    to = Destination(stream, "to", "https://to.example/")
    asyncio.run(write_config(kafka.bootstrap_servers, [to]))
    return to


def as_stored(to: Destination, event_id: str, place: Sequence[int]) -> Envelope:
    partition, offset = place
    return Envelope(
        origin=Origin(stream_topic(to.stream), partition, offset),
        value=b"{}",
        key=None,
        stream=to.stream,
        event_id=event_id,
        event_time_ms=now_ms(),
        accepted_at_ms=now_ms(),
    )


def test_a_request_is_followed_from_its_answer_on(kafka: Cluster) -> None:
    to = a_followed_stream(kafka)
    ids = [f"e-{n}" for n in range(2_000)]
    with running(kafka.bootstrap_servers) as gateway:
        send(gateway, to.stream, ["before"])
        request_id, places = send(gateway, to.stream, ids)
        # Ask at once, when the ledger has hardly been written.
        said = follow(gateway.url, request_id, limit="5000").json()
        assert {one["id"]: (one["partition"], one["offset"]) for one in said["events"]} == places
        assert (said["stream"], said["count"], said["is_complete"]) == (to.stream, 2_000, True)
        wait_until(
            lambda: queued_of(gateway, request_id) == 2_000, what="2,000 queued", timeout_s=30
        )

        late, dead, *others = [as_stored(to, one, places[one]) for one in ids]
        write(
            kafka,
            [
                outcome(others, ReceiptOutcome.DELIVERED, "status_200"),
                outcome([late], ReceiptOutcome.WAITING, "status_503"),
                route(RetryLater(SCHEDULE.tiers[1], BUSY), late, to.id, now_ms=now_ms()),
                outcome([dead], ReceiptOutcome.DEAD, "status_400"),
                route(DeadLetter("status_400", NO), dead, to.id, now_ms=now_ms()),
            ],
        )
        said = follow(gateway.url, request_id).json()
        counts = {"delivered": 1_998, "waiting": 1, "dead": 1, "queued": 0, "unknown": 0}
        assert (said["destinations"], said["is_complete"]) == ({"to": counts}, True)
        (waits,) = follow(gateway.url, request_id, event="e-0").json()["events"]
        told = waits["destinations"]["to"]
        assert (told["state"], told["tier"], told["last_status"]) == ("waiting", "5m", 503)
        assert 200_000 < told["due_at_ms"] - now_ms() <= 300_000
        (died,) = follow(gateway.url, request_id, event="e-1").json()["events"]
        told = died["destinations"]["to"]
        assert (told["state"], told["reason"], told["last_status"]) == ("dead", "status_400", 400)
        assert told["place"].startswith(("0:", "1:"))


def test_once_all_have_all_nothing_more_is_read(kafka: Cluster) -> None:
    to = a_followed_stream(kafka)
    with running(kafka.bootstrap_servers) as gateway:
        request_id, places = send(gateway, to.stream, ["only"])
        wait_until(
            lambda: queued_of(gateway, request_id) == 1, what="one event is queued", timeout_s=30
        )
        only = as_stored(to, "only", places["only"])
        write(kafka, [outcome([only], ReceiptOutcome.DELIVERED, "status_200")])
        said = follow(gateway.url, request_id).json()
        assert (said["destinations"]["to"]["delivered"], said["is_complete"]) == (1, True)


def test_what_nobody_sent_and_what_nobody_can_read_are_told_apart(kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        request_id, _ = send(gateway, stream, ["a"])
        answer = follow(gateway.url, next(request_ids()))
        assert (answer.status_code, answer.json()["code"]) == (404, "receipt_not_yet")
        with frozen(kafka, kafka.broker_ids[0]):
            begun_s = time.monotonic()
            answer = follow(gateway.url, request_id)
            took_s = time.monotonic() - begun_s
        assert (answer.status_code, answer.json()["code"]) == (503, "kafka_unavailable")
        assert answer.headers["retry-after"] == "2"
        assert took_s < 25
        # A broker that was away for this long rejoins within seconds.
        wait_until(
            lambda: follow(gateway.url, request_id).status_code == 200,
            what="the request is found again",
            timeout_s=30,
        )


def queued_of(gateway: Gateway, request_id: str) -> int:
    """Return how many are queued, once the gateway knows the destination."""
    destinations = follow(gateway.url, request_id).json()["destinations"]
    queued: int = destinations.get("to", {}).get("queued", 0)
    return queued


def test_a_search_that_time_ends_says_how_far_it_came(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        request_id, _ = send(gateway, stream, ["a"])
        assert follow(gateway.url, request_id).status_code == 200

    def found(**more: Any) -> AckedRequest:
        return asyncio.run(find_request(kafka.bootstrap_servers, request_id, **more))

    since_ms = now_ms() - 60_000
    assert found(since_ms=since_ms, wait_s=0).is_complete
    assert found(since_ms=since_ms, wait_s=0).read_until_ms is None
    monkeypatch.setattr(event_search, "SEARCH_S_MAX", 0.0)
    unfinished = found(since_ms=since_ms, wait_s=0)
    assert (unfinished.ids, unfinished.read_until_ms) == ({}, since_ms)


def test_a_delivered_a_dead_and_a_waiting_event_are_told_apart(hifi: RunningHifi) -> None:
    """All of Hifi runs: an event's receipt says what really became of it."""

    def by_id(_: int, request: Request) -> Reply:
        event_id = request.events[0]["id"]
        said = f"what {event_id} gets".encode()
        return Reply({"fine": 200, "bad": 400, "late": 503}[event_id], body=said)

    with scripted_destination(by_id) as destination:
        hifi.add(Destination("followed", "to", destination.url, batch_count_max=1))
        sent = hifi.post("followed", [{"id": "fine"}, {"id": "bad"}, {"id": "late"}])
        assert sent.status_code == 200, sent.text
        request_id = sent.json()["request_id"]
        last: list[dict[str, Any]] = []

        def settled() -> bool:
            last.append(follow(hifi.gateway, request_id).json())
            events = {one["id"]: one["destinations"]["to"] for one in last[-1]["events"]}
            states = {one: told["state"] for one, told in events.items()}
            wanted = {"fine": "delivered", "bad": "dead", "late": "waiting"}
            # Dead letters and waiting events are not written together with their receipts.
            return states == wanted and "tier" in events["late"] and "place" in events["bad"]

        wait_until(settled, what=lambda: f"three states; it says {last[-1]}")
        assert last[-1]["is_complete"]
        events = {one["id"]: one["destinations"]["to"] for one in last[-1]["events"]}
        assert (events["fine"]["reason"], events["bad"]["reason"]) == ("status_200", "status_400")
        assert (events["late"]["last_status"], events["bad"]["last_status"]) == (503, 400)
        assert events["late"]["due_at_ms"] > events["late"]["at_ms"] - 60_000

        def rounds() -> set[tuple[int, int, str]]:
            last.append(follow(hifi.gateway, request_id, event="late").json())
            tries = last[-1]["failed_tries"]
            return {(each["attempt"], each["status"], each["text"]) for each in tries}

        # One answer was given to delivery, and the later one to the retrier.
        both = {(1, 503, "what late gets"), (2, 503, "what late gets")}
        wait_until(lambda: both <= rounds(), what=lambda: f"both rounds' answers; {last[-1]}")
        assert all(each["events"] == ["late"] for each in last[-1]["failed_tries"])
        (bad,) = follow(hifi.gateway, request_id, event="bad").json()["failed_tries"]
        assert (bad["status"], bad["text"], bad["batch_events"]) == (400, "what bad gets", 1)
        assert follow(hifi.gateway, request_id, event="fine").json()["failed_tries"] == []

        shown = CliRunner().invoke(app, ["receipt", request_id, "--gateway", hifi.gateway])
        assert shown.exit_code == 0, shown.output
        for word in ("delivered", "dead", "waiting", "fine", "bad", "late", "what bad gets"):
            assert word in shown.output
