"""The signed statements of a stream over HTTP: whose they are, in pages, byte for byte."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deploy.local.cluster import Cluster
from gateway.settings import Settings
from observe.audit.signing import Signer
from shared.config.configuration import Configuration, Stream
from shared.event.record import RecordOut
from shared.event.topics import STATEMENTS, fixed_specs
from shared.proof.statement import NO_PREVIOUS, SignedStatement, Statement
from shared.runtime.kafka.topic_admin import topic_admin
from tests.integration.gateway.test_stream_events import a_key
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.kafka.kafka_log import write_rows

pytestmark = pytest.mark.integration

STREAM, MINUTE_MS, COUNT = "stated", 60_000, 5
READER, READS = a_key("reader", "read", "admin")
SENDER, SENDS = a_key("sender", "write")
STRANGER, ELSEWHERE = a_key("stranger", "read", tenant="others")
OWNER, OWNS = a_key("owner", "read", "admin", tenant="others")


def signed(signer: Signer, stream: str, minute: int) -> SignedStatement:
    said = Statement(
        stream=stream,
        minute_ms=minute * MINUTE_MS,
        revision=1,
        acked=minute,
        id_count=minute,
        root="",
        destinations={},
        issued_at_ms=0,
        previous=NO_PREVIOUS,
    )
    return signer.sign(said)


def write(kafka: Cluster, *statements: SignedStatement) -> None:
    rows = [
        RecordOut(
            STATEMENTS,
            f"{each.statement.stream}:{each.statement.minute_ms}".encode(),
            each.to_json(),
            (),
        )
        for each in statements
    ]
    # Readers must not stumble over a record that is not a statement.
    broken = RecordOut(STATEMENTS, f"{STREAM}:0".encode(), b"{", ())
    asyncio.run(write_rows(kafka.bootstrap_servers, [*rows, broken]))


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(Path(tmp_path_factory.mktemp("signer")))


@pytest.fixture(scope="module")
def gateway(kafka: Cluster, signer: Signer) -> Iterator[RunningGateway]:
    async def make() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing([it for it in fixed_specs([]) if it.name == STATEMENTS])

    asyncio.run(make())
    streams = {STREAM: Stream(STREAM)}
    keys = {each.id: each for each in (READER, SENDER, STRANGER, OWNER)}
    config = FixedConfig(Configuration(streams=streams, keys=keys))
    settings = Settings(auth="keys", bootstrap_servers=kafka.bootstrap_servers)
    with running_gateway(FakePublisher([]), config, settings) as running:
        mine = [signed(signer, STREAM, minute) for minute in range(1, COUNT + 1)]
        write(kafka, *mine, *[signed(signer, each, 9) for each in ("stated2", "passedon")])
        yield running


def ask(
    gateway: RunningGateway, text: str = READS, /, *, stream: str = STREAM, **query: Any
) -> httpx.Response:
    return httpx.get(
        f"{gateway.url}/v1/streams/{stream}/statements",
        params=query,
        headers={"authorization": f"Bearer {text}"},
        timeout=30,
    )


def minutes(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [each["statement"]["minute_ms"] // MINUTE_MS for each in answer.json()["statements"]]


def test_pages_go_back_to_the_first_and_have_none_of_another_stream(
    gateway: RunningGateway,
) -> None:
    first = ask(gateway, limit=3)
    rest = ask(gateway, limit=3, before=first.json()["older"])
    assert (minutes(first), minutes(rest), rest.json()["older"]) == ([5, 4, 3], [2, 1], None)
    asked = {"from": "1970-01-01T00:02:00Z", "to": "1970-01-01T00:04:00Z"}
    assert minutes(ask(gateway, **asked)) == [3, 2]


def test_what_is_shown_is_what_was_signed(gateway: RunningGateway, signer: Signer) -> None:
    answer = ask(gateway, limit=1)
    shown = answer.json()["statements"][0]
    said = json.dumps(shown["statement"], separators=(",", ":"), ensure_ascii=False)
    assert said in answer.text
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer.public_key))
    key.verify(b64decode(shown["signature"]), said.encode())


def test_only_who_may_read_the_stream_sees_them(gateway: RunningGateway) -> None:
    refused = [ask(gateway, text).status_code for text in (SENDS, ELSEWHERE, "nobody")]
    assert refused == [403, 404, 401]
    assert ask(gateway, before="x").status_code == 400


def test_who_has_a_name_after_another_sees_nothing_of_them(
    gateway: RunningGateway, kafka: Cluster, signer: Signer
) -> None:
    path = f"{gateway.url}/v1/streams/passedon"
    made = httpx.put(path, json={}, headers={"authorization": f"Bearer {OWNS}"}, timeout=30)
    assert made.status_code == 201, made.text
    assert minutes(ask(gateway, ELSEWHERE, stream="passedon")) == []
    write(kafka, signed(signer, "passedon", 10))
    assert minutes(ask(gateway, ELSEWHERE, stream="passedon")) == [10]
