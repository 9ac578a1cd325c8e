"""A tenant resends one event in a real Kafka: to whom, how often, and beside redrives."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from gateway.control.stores import redrive
from gateway.control.stores.receipts import KafkaReceipts
from gateway.control.stores.redrive import KafkaDeadLetters, Redriven
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.envelope import AMBIGUOUS, DESTINATION, EVENT_ID, REPLAY_ID
from shared.event.record import RecordOut
from shared.event.topics import PROBE, retry_topic
from shared.proof.receipt import ReceiptOutcome
from shared.retry.dead_letter import DeadLetterFilter, Letter, redriven_rows
from shared.runtime.kafka.only_writer import only_writer
from tests.integration.gateway.test_stream_events import a_key
from tests.integration.observe.test_console_kafka import (
    SCHEDULE,
    dies,
    event,
    outcome,
    stored,
    waits,
    write,
)
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.kafka.kafka_log import read_all

pytestmark = pytest.mark.integration

STREAM = "again"
PATH = f"/v1/streams/{STREAM}/events:resend"
# The fates of the six events at `to`; nothing is known about their fates at `quiet`.
DELIVERED, DEAD, WAITING, QUEUED, SECOND_DEAD, THIRD_DEAD = (f"e{n}" for n in range(6))

OWNER, OWNS = a_key("owner", "admin")
READER, READS = a_key("onlooker", "read")
STRANGER, ELSEWHERE = a_key("foreigner", "admin", tenant="others")


@pytest.fixture(scope="module")
def gateway(kafka: Cluster) -> Iterator[RunningGateway]:
    events = [event(STREAM, number) for number in range(6)]
    taken, dead, late, _, second, third = events
    write(
        kafka,
        STREAM,
        [
            *map(stored, events),
            outcome([taken], ReceiptOutcome.DELIVERED, attempt=1),
            outcome([dead, second, third], ReceiptOutcome.DEAD, attempt=1),
            *map(dies, (dead, second, third)),
            outcome([late], ReceiptOutcome.WAITING, attempt=1),
            waits(late),
        ],
    )
    to, quiet = (Destination(STREAM, name, f"https://{name}.example/") for name in ("to", "quiet"))
    config = FixedConfig(
        Configuration(
            streams={STREAM: Stream(STREAM)},
            destinations={each.id: each for each in (to, quiet)},
            keys={key.id: key for key in (OWNER, READER, STRANGER)},
        )
    )
    servers = kafka.bootstrap_servers
    settings = Settings(auth="keys", bootstrap_servers=servers)
    letters = KafkaDeadLetters(servers, schedule=SCHEDULE)
    receipts = KafkaReceipts(servers)
    with running_gateway(
        FakePublisher([]), config, settings, dead_letters=letters, receipts=receipts
    ) as running:
        yield running


def ask(gateway: RunningGateway, text: str = OWNS, /, **order: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {text}"}
    return httpx.post(gateway.url + PATH, json=order, headers=headers, timeout=30)


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def in_tier(kafka: Cluster, event_id: str) -> list[dict[str, bytes]]:
    """Return the headers of each copy of an event that waits to be resent."""
    found = asyncio.run(read_all(kafka.bootstrap_servers, retry_topic("30s", is_parked=True)))
    every = [dict(one.headers) for one in found]
    to = f"{STREAM}/to".encode()
    return [
        each for each in every if each[EVENT_ID] == event_id.encode() and each[DESTINATION] == to
    ]


def test_what_has_arrived_goes_again_as_often_as_it_is_asked_for(
    kafka: Cluster, gateway: RunningGateway
) -> None:
    answer = ask(gateway, id=DELIVERED, destination="to")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["id"], told["place"]) == (DELIVERED, "0:0")
    assert told["destinations"] == {"to": "resent"}
    (copy,) = in_tier(kafka, DELIVERED)
    assert copy[REPLAY_ID] == told["resend_id"].encode()
    assert copy[AMBIGUOUS] == b"1"
    by_place = ask(gateway, place="0:0").json()
    # The other destination has the event in its queue, and gets it again anyway.
    assert by_place["destinations"] == {"quiet": "queued", "to": "resent"}
    assert len(in_tier(kafka, DELIVERED)) == 2


def test_what_is_under_way_is_left_alone_and_the_answer_says_why(
    kafka: Cluster, gateway: RunningGateway
) -> None:
    late = ask(gateway, id=WAITING, destination="to")
    assert refused(late) == (409, "not_resent")
    assert "waits there for its next attempt anyway, at 2" in late.json()["detail"]
    untried = ask(gateway, id=QUEUED, destination="to")
    assert refused(untried) == (409, "not_resent")
    assert "not been tried" in untried.json()["detail"]
    every = ask(gateway, id=QUEUED).json()["destinations"]
    assert every == {"quiet": "queued", "to": "queued"}
    assert in_tier(kafka, WAITING) == in_tier(kafka, QUEUED) == []


def test_a_dead_letter_goes_once_whether_by_itself_or_with_others(
    kafka: Cluster, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(gateway, id=DEAD).json()["destinations"]["to"] == "resent"
    assert refused(ask(gateway, id=DEAD, destination="to")) == (409, "not_resent")

    # While a redrive of the stream runs, before its second chunk.
    def meanwhile(chunk: Sequence[Letter], **more: Any) -> list[RecordOut]:
        if chunk[0].event_id == SECOND_DEAD:
            assert ask(gateway, id=THIRD_DEAD, destination="to").status_code == 200
        return redriven_rows(chunk, **more)

    monkeypatch.setattr(redrive, "redriven_rows", meanwhile)
    letters = KafkaDeadLetters(kafka.bootstrap_servers, schedule=SCHEDULE)
    wanted = DeadLetterFilter(stream=STREAM)
    done = asyncio.run(letters.redrive(wanted, redrive_id="r", rate_per_s=1.9))
    assert done == Redriven(count=1, already=2)
    for event_id in (DEAD, SECOND_DEAD, THIRD_DEAD):
        assert len(in_tier(kafka, event_id)) == 1, event_id


def test_a_redrive_that_runs_goes_on(kafka: Cluster, gateway: RunningGateway) -> None:
    async def run() -> None:
        async with only_writer(kafka.bootstrap_servers, f"hifi-redrive-{STREAM}") as write_rows:
            answer = await asyncio.to_thread(ask, gateway, id=DELIVERED, destination="to")
            assert answer.status_code == 200, answer.text
            # This would fail with OvertakenError if another writer had begun.
            await write_rows([(PROBE, None, b"{}", ())])

    asyncio.run(run())


def test_only_who_may_sends_only_what_is_theirs(gateway: RunningGateway) -> None:
    assert refused(ask(gateway, READS, id=DELIVERED)) == (403, "scope_missing")
    assert refused(ask(gateway, ELSEWHERE, id=DELIVERED)) == (404, "unknown_stream")
    assert refused(ask(gateway, id=DELIVERED, destination="x")) == (404, "unknown_destination")
    assert refused(ask(gateway, id="nobodys")) == (404, "unknown_event")
    assert refused(ask(gateway, place="0:99")) == (404, "unknown_event")
    assert refused(ask(gateway, id=DEAD, place="0:0")) == (404, "unknown_event")
    assert refused(ask(gateway)) == (400, "bad_object")
    assert refused(ask(gateway, id=7)) == (400, "bad_object")


def test_the_command_says_what_goes_where(gateway: RunningGateway) -> None:
    def hifi(*arguments: str) -> str:
        env = {"HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": OWNS}
        ran = CliRunner().invoke(app, ["events", "resend", STREAM, *arguments], env=env)
        return ran.stdout + ran.stderr + str(ran.exception or "")

    said = hifi(DELIVERED)
    assert "to: resent" in said
    assert "quiet: left alone: it has not been tried there yet" in said
    told = json.loads(hifi("--place", "0:0", "--destination", "to", "--json"))
    assert told["destinations"] == {"to": "resent"}
    assert "name the event" in hifi()
    assert "waits there for its next attempt" in hifi(WAITING, "--destination", "to")
